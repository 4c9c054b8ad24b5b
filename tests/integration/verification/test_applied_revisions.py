"""What verification makes of the rows that say which revisions were applied: older, newer, altered ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection

from agentruns.errors import InvalidOptionError, SchemaVerificationError
from agentruns.store.verification import SchemaReport, verify_schema

Undone = Callable[[Callable[[Connection], Any]], Any]

NEWER = """
INSERT INTO agentruns.applied_revisions
SELECT {number}, 'agentruns_00{number}', checksum, {oldest_code}, applied_at, applied_by, '9.9'
FROM agentruns.applied_revisions WHERE number = 16
"""
TRIGGER = """
CREATE TRIGGER append_only_0017 BEFORE UPDATE OF priority ON agentruns.runs
FOR EACH STATEMENT EXECUTE FUNCTION agentruns.forbid_change()
"""
#: What a newer release may well add; in the schema of this one each is unexpected.
ADDED = (
    "ALTER TABLE agentruns.runs ADD priority smallint",
    "ALTER TABLE agentruns.runs ADD CONSTRAINT ck_runs_priority CHECK (priority > 0)",
    "CREATE UNIQUE INDEX ux_runs_priority ON agentruns.runs (tenant_id, priority)",
    TRIGGER,
    "CREATE TABLE agentruns.run_labels (tenant_id text, run_id uuid)",
)


def newer(number: int, *, oldest_code: int) -> str:
    return NEWER.format(number=number, oldest_code=oldest_code)


def verified(undone: Undone, *statements: str, **options: Any) -> SchemaReport:
    def work(connection: Connection) -> SchemaReport:
        for statement in statements:
            connection.exec_driver_sql(statement)
        return verify_schema(connection, **options)

    report: SchemaReport = undone(work)
    return report


def refused(undone: Undone, *statements: str, **options: Any) -> SchemaVerificationError:
    with pytest.raises(SchemaVerificationError) as caught:
        verified(undone, *statements, **options)
    return caught.value


def test_a_migrated_schema_verifies(undone: Undone, server: Any) -> None:
    report = verified(undone)
    assert report.schema == "agentruns"
    assert report.server_version.startswith(f"{server.major}.")
    assert report.revisions == tuple(f"agentruns_{number:04d}" for number in range(1, 17))
    assert (report.newer, report.is_ahead) == ((), False)


def test_OPS_04_no_table_or_no_row_is_not_migrated(undone: Undone) -> None:
    assert refused(undone, "DELETE FROM agentruns.applied_revisions").reason == "not_migrated"
    elsewhere = "CREATE SCHEMA another", "CREATE TABLE another.applied_revisions ()"
    other = refused(undone, *elsewhere, schema="other")
    found = "tables in schema agentruns, another"
    assert (other.reason, other.schema, other.found) == ("not_migrated", "other", found)
    renamed = refused(undone, "ALTER SCHEMA agentruns RENAME TO moved")
    assert (renamed.reason, renamed.found) == ("not_migrated", "tables in schema moved")
    nowhere = refused(undone, "DROP SCHEMA agentruns CASCADE")
    assert (nowhere.reason, nowhere.found) == ("not_migrated", "")


def test_OPS_04_a_missing_end_is_behind(undone: Undone) -> None:
    error = refused(undone, "DELETE FROM agentruns.applied_revisions WHERE number > 14")
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
def test_OPS_04_a_row_that_was_removed_altered_or_moved_is_tampered(undone: Undone, statement: str, found: str) -> None:
    error = refused(undone, statement)
    assert (error.reason, error.found) == ("tampered", found)


def test_OPS_04_what_a_newer_revision_added_is_its_own(undone: Undone) -> None:
    assert refused(undone, *ADDED).reason == "incomplete"
    before = verified(undone)
    report = verified(undone, *ADDED, newer(17, oldest_code=16), newer(18, oldest_code=1))
    assert (report.newer, report.is_ahead) == (("agentruns_0017", "agentruns_0018"), True)
    assert report.revisions == (*before.revisions, *report.newer)
    assert report.warnings == before.warnings


def test_OPS_04_a_newer_revision_that_needs_a_newer_release_is_refused(undone: Undone) -> None:
    for last in (newer(18, oldest_code=17), newer(18, oldest_code=18)):
        error = refused(undone, newer(17, oldest_code=16), last)
        assert (error.reason, error.found, error.wanted) == ("ahead", "agentruns_0018", "agentruns_0016")
    error = refused(undone, newer(17, oldest_code=17), newer(18, oldest_code=16))
    assert error.reason == "ahead"


def test_OPS_04_strict_refuses_every_newer_schema(undone: Undone) -> None:
    error = refused(undone, newer(17, oldest_code=1), strict=True)
    assert (error.reason, error.found, error.wanted) == ("ahead", "agentruns_0017", "agentruns_0016")
    assert verified(undone, strict=True).newer == ()


def test_OPS_04_a_newer_schema_without_what_this_release_needs_is_ahead(undone: Undone) -> None:
    error = refused(undone, newer(17, oldest_code=16), "DROP INDEX agentruns.ix_runs_live", *ADDED)
    assert (error.reason, error.found, error.wanted) == ("ahead", "agentruns_0017", "agentruns_0016")
    assert error.findings == ("missing index runs.ix_runs_live",)


def test_OPS_04_a_newer_row_after_a_gap_is_tampered(undone: Undone) -> None:
    error = refused(undone, newer(18, oldest_code=16))
    assert (error.reason, error.found, error.wanted) == ("tampered", "agentruns_0018", "revision number 17")


def test_OPS_04_revisions_that_changed_places_are_tampered(undone: Undone) -> None:
    swap = """
    UPDATE agentruns.applied_revisions AS a SET revision = b.revision || '{suffix}'
    FROM agentruns.applied_revisions AS b WHERE (a.number, b.number) IN ((3, 4), (4, 3))
    """
    cut = "UPDATE agentruns.applied_revisions SET revision = left(revision, 14)"
    error = refused(undone, swap.format(suffix="x"), cut)
    assert (error.reason, error.found, error.wanted) == ("tampered", "agentruns_0004", "agentruns_0003")


def test_a_bad_schema_name_is_refused_before_any_statement(undone: Undone) -> None:
    with pytest.raises(InvalidOptionError):
        verified(undone, schema='a"b')
