"""What verification makes of the rows that say which revisions were applied."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from agentruns.errors import InvalidOptionError, SchemaVerificationError
from agentruns.operations.verification import SchemaReport, verify_schema

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]
NEWER = """
INSERT INTO agentruns.applied_revisions
SELECT 17, 'agentruns_0017', checksum, {oldest_code}, applied_at, applied_by, '9.9' FROM agentruns.applied_revisions
WHERE number = 16
"""


def verified(run: Run[Any], url: str, *statements: str, **options: Any) -> SchemaReport:
    """Change the rows, then verify on the same connection."""

    async def work() -> SchemaReport:
        engine = create_async_engine(url)
        try:
            async with engine.connect() as connection:
                return await connection.run_sync(change_and_verify)
        finally:
            await engine.dispose()

    def change_and_verify(connection: Connection) -> SchemaReport:
        for statement in statements:
            connection.execute(text(statement))
        return verify_schema(connection, **options)

    report: SchemaReport = run(work())
    return report


def refused(run: Run[Any], url: str, *statements: str, **options: Any) -> SchemaVerificationError:
    with pytest.raises(SchemaVerificationError) as caught:
        verified(run, url, *statements, **options)
    return caught.value


def test_a_migrated_schema_verifies(run: Run[Any], database_url: str, server: Any) -> None:
    report = verified(run, database_url)
    assert report.schema == "agentruns"
    assert report.server_version.startswith(f"{server.major}.")
    assert report.revisions == tuple(f"agentruns_{number:04d}" for number in range(1, 17))
    assert (report.newer, report.is_ahead) == ((), False)


def test_OPS_4_no_table_or_no_row_is_not_migrated(run: Run[Any], database_url: str, empty_database_url: str) -> None:
    assert refused(run, empty_database_url).reason == "not_migrated"
    assert refused(run, database_url, "DELETE FROM agentruns.applied_revisions").reason == "not_migrated"
    other = refused(run, database_url, schema="other")
    assert (other.reason, other.schema, other.found) == ("not_migrated", "other", "tables in schema agentruns")


def test_OPS_4_a_missing_end_is_behind(run: Run[Any], database_url: str) -> None:
    error = refused(run, database_url, "DELETE FROM agentruns.applied_revisions WHERE number > 14")
    assert (error.reason, error.found, error.wanted) == ("behind", "agentruns_0014", "agentruns_0016")


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("DELETE FROM agentruns.applied_revisions WHERE number = 3", "agentruns_0004"),
        ("DELETE FROM agentruns.applied_revisions WHERE number = 1", "agentruns_0002"),
        ("UPDATE agentruns.applied_revisions SET revision = 'other' WHERE number = 5", "other"),
        (
            "UPDATE agentruns.applied_revisions SET checksum = sha256('x') WHERE number = 16",
            "agentruns_0016 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
        ),
        ("UPDATE agentruns.applied_revisions SET number = 18 WHERE number = 16", "agentruns_0016"),
    ],
)
def test_OPS_4_a_row_that_was_removed_altered_or_moved_is_tampered(
    run: Run[Any], database_url: str, statement: str, found: str
) -> None:
    error = refused(run, database_url, statement)
    assert (error.reason, error.found) == ("tampered", found)


def test_OPS_4_a_newer_row_passes_when_it_permits_this_release(run: Run[Any], database_url: str) -> None:
    report = verified(run, database_url, NEWER.format(oldest_code=16))
    assert (report.newer, report.is_ahead) == (("agentruns_0017",), True)
    assert refused(run, database_url, NEWER.format(oldest_code=17)).reason == "ahead"
    strict = refused(run, database_url, NEWER.format(oldest_code=1), strict=True)
    assert (strict.reason, strict.found, strict.wanted) == ("ahead", "agentruns_0017", "agentruns_0016")


def test_a_role_without_privileges_is_told_so(run: Run[Any], database_url: str) -> None:
    error = refused(run, database_url, "SET LOCAL ROLE pg_monitor")
    assert error.reason == "missing_privileges"


def test_a_bad_schema_name_is_refused_before_any_statement(run: Run[Any], database_url: str) -> None:
    with pytest.raises(InvalidOptionError):
        verified(run, database_url, schema='a"b')
