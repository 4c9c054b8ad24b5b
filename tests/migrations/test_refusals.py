"""What the migrations refuse: schemas, files and orders that nobody released, and the loss of evidence."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.errors import (
    InvalidOptionError,
    InvariantError,
    SchemaVerificationError,
    UnitOfWorkError,
)
from agentruns.migrations import environment, frozen, locking
from agentruns.migrations.translate import translated

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]


def execute(statement: str) -> Callable[[Connection], Any]:
    return lambda connection: connection.execute(text(statement))


def number_of(connection: Connection) -> Any:
    return connection.execute(text("SELECT max(number) FROM agentruns.applied_revisions")).scalar_one()


@pytest.mark.parametrize("schema", ['my "odd" Schema', "public", "information_schema", "pg_mine", "", "x" * 49, "1a"])
def test_J8_schema_name_is_refused_before_any_sql(schema: str) -> None:
    no_connection: Any = None
    for call in (migrations.upgrade, migrations.downgrade):
        with pytest.raises(InvalidOptionError) as caught:
            call(no_connection, to="base", schema=schema)
        assert caught.value.option == "schema"
    with pytest.raises(InvalidOptionError):
        migrations.sql(schema=schema)


def wait_turn(connection: Connection) -> None:
    migrations.wait_turn(environment.configured(connection, environment.upgrade_to("head"), schema="agentruns"))


@pytest.mark.parametrize("call", [migrations.upgrade, partial(migrations.downgrade, to="base"), wait_turn])
def test_autocommit_is_refused(empty_database_url: str, run: Run, call: Callable[[Connection], None]) -> None:
    async def work() -> UnitOfWorkError:
        engine = create_async_engine(empty_database_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            with pytest.raises(UnitOfWorkError) as caught:
                await connection.run_sync(call)
        return caught.value

    assert run(work()).reason == "autocommit"


@pytest.mark.parametrize("version", ["NULL", "'agentruns_0007'"])
def test_revision_applied_by_another_mode_is_refused(database_url: str, within: Within, version: str) -> None:
    forget = "DELETE FROM agentruns.alembic_version"
    other = f"UPDATE agentruns.alembic_version SET version_num = {version}"  # noqa: S608
    within(database_url, execute(forget if version == "NULL" else other))
    with pytest.raises(SchemaVerificationError) as caught:
        within(database_url, migrations.upgrade)
    assert (caught.value.reason, caught.value.schema) == ("already_applied", "agentruns")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("DELETE FROM agentruns.applied_revisions WHERE number = 15", "behind"),
        ("UPDATE agentruns.applied_revisions SET checksum = sha256('') WHERE number = 15", "tampered"),
        ("UPDATE agentruns.applied_revisions SET revision = 'mine' WHERE number = 15", "tampered"),
        ("ALTER TABLE agentruns.applied_revisions RENAME TO gone", "behind"),
    ],
)
def test_revision_without_its_predecessor_is_refused(
    database_url: str, within: Within, damage: str, reason: str
) -> None:
    def work(connection: Connection) -> None:
        migrations.downgrade(connection, to="15")
        connection.execute(text(damage))

    within(database_url, work)
    with pytest.raises(SchemaVerificationError) as caught:
        within(database_url, migrations.upgrade)
    assert caught.value.reason == reason


def test_changed_file_is_refused_by_the_revision_itself(
    empty_database_url: str, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "check_files", lambda _: None)
    checksum_of = frozen._checksum_of
    monkeypatch.setattr(frozen, "_checksum_of", lambda number: "1" * 64 if number == 1 else checksum_of(number))
    with pytest.raises(SchemaVerificationError) as caught:
        within(empty_database_url, migrations.upgrade)
    assert (caught.value.reason, caught.value.wanted) == ("tampered", "1" * 64)


def test_other_server_is_refused(empty_database_url: str, within: Within) -> None:
    def pretend(connection: Connection) -> None:
        with translated("agentruns"):
            statement = frozen._GUARD.replace("160000", "190000").replace("189999", "199999")
            connection.execute(text(frozen.located(statement.replace("{history}", ""), "agentruns")))

    with pytest.raises(SchemaVerificationError) as caught:
        within(empty_database_url, pretend)
    assert caught.value.reason == "unsupported_server"


def test_change_of_an_append_only_record_is_a_fault_of_ours(database_url: str, within: Within) -> None:
    def change(connection: Connection) -> None:
        with translated("agentruns"):
            connection.execute(text("DELETE FROM agentruns.run_events"))

    with pytest.raises(InvariantError) as caught:
        within(database_url, change)
    assert caught.value.reason == "append_only"


def test_other_errors_pass_unchanged(database_url: str, within: Within) -> None:
    def divide(connection: Connection) -> None:
        with translated("agentruns"):
            connection.execute(text("SELECT 1 / 0"))

    with pytest.raises(DBAPIError):
        within(database_url, divide)
