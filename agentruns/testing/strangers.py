"""What others do to a database while a store works on it: hold rows, end connections, forbid rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from attrs import frozen
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.ids import RunId

_PATIENCE: Final = 30.0
_OURS: Final = "datname = current_database() AND application_name = 'agentruns'"


@frozen
class Stranger:
    """Hold a connection of somebody else's to the database of ``url`` for each thing that it does."""

    url: str

    @asynccontextmanager
    async def holding(self, *run_ids: RunId) -> AsyncIterator[None]:
        """Hold the rows of runs in a transaction that changes nothing, and roll it back at the end."""
        async with self._connected() as connection:
            transaction = await connection.begin()
            for run_id in run_ids:
                found = await connection.execute(
                    text("SELECT 1 FROM agentruns.runs WHERE run_id = cast(:run_id AS uuid) FOR UPDATE"),
                    {"run_id": run_id.text},
                )
                found.one()
            try:
                yield
            finally:
                await transaction.rollback()

    @asynccontextmanager
    async def locking(self, table: str) -> AsyncIterator[None]:
        """Keep every statement that would write to a table waiting, with all that it has locked."""
        async with self._connected() as connection, connection.begin():
            await connection.execute(text(f"LOCK TABLE agentruns.{table} IN EXCLUSIVE MODE"))
            yield

    async def see_waiting(self, count: int = 1) -> None:
        """Return once that many of the store's statements wait for a lock.

        Raises:
            TimeoutError: they do not.
        """
        async with asyncio.timeout(_PATIENCE):
            waiting = f"SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND {_OURS}"  # noqa: S608  # our own text
            while (await self._execute(waiting))[0].n < count:  # noqa: ASYNC110  # it happens in the server
                await asyncio.sleep(0.01)

    async def see_idle(self) -> None:
        """Return once none of the store's statements is under way, also none whose caller has gone.

        Raises:
            TimeoutError: one is.
        """
        async with asyncio.timeout(_PATIENCE):
            active = f"SELECT count(*) AS n FROM pg_stat_activity WHERE state <> 'idle' AND {_OURS}"  # noqa: S608  # our own text
            while (await self._execute(active))[0].n:  # noqa: ASYNC110  # it happens in the server
                await asyncio.sleep(0.01)

    async def terminate_connections(self) -> int:
        """End every connection of the store, and say how many there were."""
        ended = await self._execute(f"SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE {_OURS}")  # noqa: S608  # our own text
        return len(ended)

    async def connection_count(self) -> int:
        """Count the connections of the store."""
        found = await self._execute(f"SELECT count(*) AS n FROM pg_stat_activity WHERE {_OURS}")  # noqa: S608  # our own text
        return int(found[0].n)

    async def forbid(self, table: str, condition: str) -> None:
        """Let a trigger refuse, like a CHECK, every new row of a table that meets a condition over ``NEW``."""
        await self._execute(
            "CREATE FUNCTION public.forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF {condition} THEN RAISE EXCEPTION USING ERRCODE = '23514', CONSTRAINT = 'forbidden'; END IF;"
            " RETURN NEW; END $$",
            f"CREATE TRIGGER forbidden BEFORE INSERT ON agentruns.{table}"
            " FOR EACH ROW EXECUTE FUNCTION public.forbid()",
        )

    async def become_read_only(self) -> None:
        """Let the whole server refuse to write, in sessions that are open too, like a primary that was demoted."""
        await self._configure("default_transaction_read_only = on")

    async def become_writable(self) -> None:
        """Let it write again."""
        await self._configure("default_transaction_read_only = off")

    async def _configure(self, setting: str) -> None:
        async with self._connected() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await connection.exec_driver_sql(f"ALTER SYSTEM SET {setting}")
            await connection.exec_driver_sql("SELECT pg_reload_conf()")

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        engine = create_async_engine(self.url, poolclass=NullPool)
        try:
            async with engine.connect() as connection:
                yield connection
        finally:
            await engine.dispose()

    async def _execute(self, *statements: str) -> Sequence[Any]:
        found: Sequence[Any] = ()
        async with self._connected() as connection, connection.begin():
            for statement in statements:
                result = await connection.execute(text(statement))
                found = result.all() if result.returns_rows else ()
        return found
