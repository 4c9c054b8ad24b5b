"""The server that everything is measured on: embedded, durable, in a directory of its own that is removed."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg
from attrs import frozen
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.operations.embedded import EmbeddedServer

Connection: TypeAlias = "asyncpg.Connection[Any]"

OURS: Final = "ours"
FLOOR: Final = "floor"

_LOOK: Final = 0.01

#: The tables that any case writes.
_WRITTEN: Final = (
    "agentruns.runs",
    "agentruns.agent_submission_keys",
    "agentruns.agent_admissions",
    "agentruns.run_events",
    "agentruns.run_checkpoints",
    "agentruns.node_attempts",
    "agentruns.node_results",
    "agentruns.run_outcomes",
)

#: What of the server's settings decides about the figures.
_SETTINGS: Final = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers")


@frozen(kw_only=True)
class Place:
    """Two migrated databases on one server: one for the library, one for the floor.

    Attributes:
        base: address of the server.
        watcher: a connection to a third database, whose own traffic counts nowhere.
    """

    base: URL
    watcher: Connection

    def url(self, database: str) -> URL:
        """Give the address of one database."""
        return self.base.set(database=database)

    async def connect(self, database: str) -> Connection:
        """Open a raw connection."""
        query = self.base.query
        return await asyncpg.connect(
            host=str(query["host"]), port=int(str(query["port"])), user=self.base.username, database=database
        )

    async def commits(self, database: str) -> int:
        """Count the transactions that closed connections have committed."""
        users = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"
        while await self.watcher.fetchval(users, database):  # noqa: ASYNC110 - the server reports when a backend ends
            await asyncio.sleep(_LOOK)
        found = await self.watcher.fetchval("SELECT xact_commit FROM pg_stat_database WHERE datname = $1", database)
        return int(found)

    async def written(self) -> int:
        """Give the bytes of write-ahead log so far."""
        return int(await self.watcher.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    async def settle(self) -> None:
        """Do now what the server would do at times of its own, so that each case starts alike and none is disturbed."""
        for database in (OURS, FLOOR):
            connection = await self.connect(database)
            await connection.execute(f"VACUUM (ANALYZE) {', '.join(_WRITTEN)}")
            await connection.close()
        await self.watcher.execute("CHECKPOINT")

    async def settings(self) -> dict[str, str]:
        """Read the settings that decide about the figures."""
        return {name: str(await self.watcher.fetchval("SELECT current_setting($1)", name)) for name in _SETTINGS}


@contextmanager
def server(major: int) -> Iterator[URL]:
    """Run a durable server."""
    folder = Path(tempfile.mkdtemp(prefix="agentruns-bench-"))
    folder.chmod(0o755)  # the server may be another account, which has to pass
    try:
        with EmbeddedServer(folder / "data", major=major) as embedded:
            yield embedded.url
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def place(base: URL) -> AsyncIterator[Place]:
    """Make the two databases, with the same tables."""
    query = base.query
    watcher = await asyncpg.connect(
        host=str(query["host"]), port=int(str(query["port"])), user=base.username, database="postgres"
    )
    made = Place(base=base, watcher=watcher)
    try:
        await watcher.execute("ALTER SYSTEM SET autovacuum = off")  # see `settle`
        await watcher.execute("SELECT pg_reload_conf()")
        await watcher.execute(f"CREATE DATABASE {OURS}")
        engine = create_async_engine(made.url(OURS), poolclass=NullPool)
        async with engine.connect() as connection:
            await connection.run_sync(migrations.upgrade)
        await watcher.execute(f"CREATE DATABASE {FLOOR} TEMPLATE {OURS}")
        yield made
    finally:
        await watcher.close()
