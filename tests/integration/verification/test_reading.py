"""Verification leaves nothing behind, whatever kind of connection it is given."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.errors import InvalidOptionError, SchemaVerificationError
from agentruns.runtime.store import AgentRunStore
from agentruns.store.verification import verify_schema
from agentruns.store.verification.catalogue import read_catalogue

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]
Undone = Callable[[Callable[[Connection], Any]], Any]

SHOWN = "SELECT current_setting('TimeZone'), current_setting('search_path'), current_setting('DateStyle')"


def connected(run: Run, url: str, work: Callable[[Connection], Any], **options: Any) -> Any:
    async def call() -> Any:
        engine = create_async_engine(url, poolclass=NullPool, **options)
        async with engine.connect() as connection:
            return await connection.run_sync(work)

    return run(call())


def shown(connection: Connection) -> tuple[Any, ...]:
    return tuple(connection.execute(text(SHOWN)).one())


def statements(connection: Connection) -> list[str]:
    """Verify, and give what was sent."""
    sent: list[str] = []
    listener = (connection, "before_cursor_execute", lambda *call: sent.append(call[2].strip()))
    event.listen(*listener)
    verify_schema(connection)
    event.remove(*listener)
    return sent


def test_at_most_eight_statements_are_sent(database_url: str, run: Run) -> None:
    own = connected(run, database_url, statements, isolation_level="AUTOCOMMIT")
    joined = connected(run, database_url, statements)
    assert (len(own), len(joined)) == (7, 8)
    assert (own[2], own[5]) == ("BEGIN READ ONLY", "ROLLBACK")
    assert [sent.partition(" agentruns")[0] for sent in (joined[2], joined[5], joined[6])] == [
        "SAVEPOINT",
        "ROLLBACK TO SAVEPOINT",
        "RELEASE SAVEPOINT",
    ]
    assert own[3] == joined[3]
    assert own[3].startswith("SELECT set_config('TimeZone', 'UTC', true)")


def test_the_callers_settings_and_locks_are_what_they_were(undone: Undone) -> None:
    def work(connection: Connection) -> None:
        connection.exec_driver_sql("SET LOCAL TimeZone = 'America/Lima'")
        before = shown(connection)
        verify_schema(connection)
        assert shown(connection) == before == ("America/Lima", "agentruns, public", "German, DMY")
        held = (
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'agentruns.run_events'::regclass"
        )
        assert connection.execute(text(held)).scalar_one() == 0

    undone(work)


def test_the_callers_transaction_goes_on_after_a_refusal(undone: Undone) -> None:
    def work(connection: Connection) -> None:
        connection.exec_driver_sql("DROP INDEX agentruns.ix_runs_live")
        before = shown(connection)
        with pytest.raises(SchemaVerificationError):
            verify_schema(connection)
        assert shown(connection) == before
        connection.exec_driver_sql("CREATE TABLE public.goes_on ()")

    undone(work)


def test_in_autocommit_no_transaction_and_no_setting_stays(owner_url: str, run: Run) -> None:
    def work(connection: Connection) -> None:
        connection.exec_driver_sql("SET TimeZone = 'Asia/Tokyo'")
        before = shown(connection)
        verify_schema(connection)
        assert shown(connection) == before
        connection.exec_driver_sql("DROP INDEX agentruns.ix_runs_live")
        with pytest.raises(SchemaVerificationError):
            verify_schema(connection)
        assert shown(connection) == before
        driver_connection: Any = connection.connection.driver_connection
        assert driver_connection.is_in_transaction() is False

    connected(run, owner_url, work, isolation_level="AUTOCOMMIT")


def test_a_failure_while_reading_leaves_no_transaction(database_url: str, run: Run) -> None:
    def work(connection: Connection) -> None:
        before = shown(connection)
        with pytest.raises(ZeroDivisionError):
            _fail_inside(connection)
        assert shown(connection) == before
        verify_schema(connection)

    for options in ({}, {"isolation_level": "AUTOCOMMIT"}):
        connected(run, database_url, work, **options)


def _fail_inside(connection: Connection) -> None:
    def fail(*call: Any) -> None:
        if "WITH relation" in call[2]:
            raise ZeroDivisionError

    event.listen(connection, "before_cursor_execute", fail)
    try:
        read_catalogue(connection, schema="agentruns")
    finally:
        event.remove(connection, "before_cursor_execute", fail)


@pytest.mark.parametrize("options", [{}, {"isolation_level": "AUTOCOMMIT"}])
def test_a_server_that_only_reads_verifies(database_url: str, run: Run, options: dict[str, str]) -> None:
    def work(connection: Connection) -> None:
        assert connection.execute(text("SHOW transaction_read_only")).scalar_one() == "on"
        verify_schema(connection)

    settings = {"server_settings": {"default_transaction_read_only": "on"}}
    connected(run, database_url, work, connect_args=settings, **options)


@pytest.mark.parametrize("schema", ["select", "r", "user"])
def test_a_schema_whose_name_is_a_word_of_sql_verifies(
    empty_database_url: str, run: Run, within: Within, schema: str
) -> None:
    within(empty_database_url, lambda connection: migrations.upgrade(connection, schema=schema))
    settings = {"server_settings": {"quote_all_identifiers": "on"}}
    for arguments in ({}, {"connect_args": settings}):
        report = connected(run, empty_database_url, lambda c: verify_schema(c, schema=schema), **arguments)
        assert (report.schema, report.newer) == (schema, ())


def test_a_store_is_opened_on_the_whole_schema_only(database_url: str, run: Run, within: Within) -> None:
    async def opened() -> None:
        async with AgentRunStore(database_url):
            pass

    run(opened())
    within(database_url, lambda c: c.exec_driver_sql("ALTER TABLE agentruns.runs DISABLE TRIGGER append_only"))
    with pytest.raises(SchemaVerificationError) as caught:
        run(opened())
    assert caught.value.findings == ("different trigger runs.append_only",)


def test_a_bad_mode_is_refused_before_any_statement(undone: Undone) -> None:
    def work(connection: Connection) -> None:
        with pytest.raises(InvalidOptionError):
            verify_schema(connection, privileges="demand")  # type: ignore[arg-type]

    undone(work)
