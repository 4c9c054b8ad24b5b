"""Revision 0016 that fails after any of its statements: what is left is 0015, and the next try succeeds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.store.released import released_catalogue
from agentruns.store.verification.catalogue import read_catalogue

Run = Callable[[Coroutine[Any, Any, Any]], Any]

#: A version of a row has a place and a transaction that made it: where these are equal, the rows are the same ones.
VERSIONS = "SELECT '{0}', count(*), bit_xor(hashtextextended(concat(ctid, xmin), 0)) FROM agentruns.{0}"
CONTENT = "SELECT '{0}', count(*), sha256(string_agg(t::text, '' ORDER BY t::text)::bytea) FROM agentruns.{0} AS t"
TELLING_OF_REVISIONS = ("alembic_version", "applied_revisions")
LAST = "UPDATE agentruns.alembic_version"


class StoppedError(Exception):
    """What a failure is, in these tests."""


def upgrade(connection: Connection, executed: Callable[[list[str]], None]) -> list[str]:
    """Upgrade, show all statements so far after each of them, and give them."""
    statements: list[str] = []

    def after(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement.strip())
        executed(statements)

    event.listen(connection, "after_cursor_execute", after)
    try:
        migrations.upgrade(connection)
    finally:
        event.remove(connection, "after_cursor_execute", after)
    return statements


def stop_after(number: int) -> Callable[[list[str]], None]:
    def executed(statements: list[str]) -> None:
        if len(statements) == number:
            raise StoppedError

    return executed


def found(connection: Connection, each: str) -> tuple[Any, dict[str, Any]]:
    """Read the catalogue, and what ``each`` selects of each table."""
    catalogue = read_catalogue(connection, schema="agentruns", ignored=())
    names = [name for name, kind in catalogue["relation"].items() if kind.startswith("r")]
    rows = connection.execute(text(" UNION ALL ".join(each.format(name) for name in names)))
    return catalogue, {name: tuple(values) for name, *values in rows}


async def left(connection: AsyncConnection, each: str) -> tuple[Any, dict[str, Any]]:
    """Read it anew, after whatever the connection was doing."""
    await connection.rollback()
    seen = await connection.run_sync(found, each)
    await connection.rollback()
    return seen


@pytest.mark.slow
def test_OPS_03_a_failure_after_each_statement_leaves_0015_and_the_next_try_succeeds(
    earlier_url: str, run: Run
) -> None:
    async def work() -> list[str]:
        engine = create_async_engine(earlier_url, poolclass=NullPool)
        async with engine.connect() as connection:
            (_, content), before = await left(connection, CONTENT), await left(connection, VERSIONS)
            for number in count(1):
                try:
                    statements = await connection.run_sync(upgrade, stop_after(number))
                except StoppedError:
                    assert await left(connection, VERSIONS) == before
                else:
                    break
            _, after = await left(connection, CONTENT)
        await engine.dispose()
        assert {name: after[name] for name in content if name not in TELLING_OF_REVISIONS} == {
            name: rows for name, rows in content.items() if name not in TELLING_OF_REVISIONS
        }
        return statements

    statements = run(work())
    assert sum(statement.startswith("CREATE") for statement in statements) == 27  # two tables, two triggers, the views
    assert statements[-1].startswith(LAST)


def test_OPS_03_a_server_process_that_dies_before_the_commit_leaves_0015(earlier_url: str, run: Run) -> None:
    def upgrade_to_death(connection: Connection) -> None:
        def executed(statements: list[str]) -> None:
            if statements[-1].startswith(LAST):
                connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

        upgrade(connection, executed)

    async def work() -> Any:
        engine = create_async_engine(earlier_url, poolclass=NullPool)
        async with engine.connect() as connection:
            before = await left(connection, VERSIONS)
            with pytest.raises(DBAPIError) as caught:
                await connection.run_sync(upgrade_to_death)
            assert caught.value.connection_invalidated
        async with engine.connect() as connection:
            assert await left(connection, VERSIONS) == before
            await connection.run_sync(migrations.upgrade)
            catalogue = await connection.run_sync(lambda sync: read_catalogue(sync, schema="agentruns"))
        await engine.dispose()
        return catalogue

    assert run(work()) == released_catalogue("agentruns")
