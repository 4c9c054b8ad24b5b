"""The server that everything is measured on: embedded, durable, in a directory of its own that is removed."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

import asyncpg
import psutil
from attrs import frozen
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.operations.embedded import EmbeddedServer

Connection: TypeAlias = "asyncpg.Connection[Any]"

OURS: Final = "ours"
FLOOR: Final = "floor"
PEER: Final = "peer"

_MIGRATED: Final = "migrated"
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
    """Databases on one server: two migrated ones for the library and the floor, and a bare one for a peer.

    Attributes:
        base: address of the server.
        watcher: a connection to a third database, whose own traffic counts nowhere.
        settles: whether the cases are kept from disturbing one another; it takes longer than the smallest of them.
    """

    base: URL
    watcher: Connection
    settles: bool = True

    def url(self, database: str) -> URL:
        """Give the address of one database."""
        return self.base.set(database=database)

    async def connect(self, database: str) -> Connection:
        """Open a raw connection."""
        query = self.base.query
        return await asyncpg.connect(
            host=str(query["host"]), port=int(str(query["port"])), user=self.base.username, database=database
        )

    async def create(self, database: str) -> None:
        """Make one more migrated database, which is not seen to between the cases."""
        await self.watcher.execute(f"CREATE DATABASE {database} TEMPLATE {_MIGRATED}")

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

    async def server_seconds(self) -> float:
        """Give how long the server's processes have computed so far, those that have ended too."""
        server = psutil.Process(await self.watcher.fetchval("SELECT pg_backend_pid()")).parent()
        assert server is not None
        own = server.cpu_times()
        seconds: float = own.user + own.system + own.children_user + own.children_system
        for each in server.children():
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile, and counts with the server's own
                times = each.cpu_times()
                seconds += times.user + times.system
        return seconds

    async def vacuum(self, database: str) -> None:
        """Do what autovacuum does, for the tables that runs are in."""
        connection = await self.connect(database)
        await connection.execute(f"VACUUM (ANALYZE) {', '.join(_WRITTEN)}")
        await connection.close()

    async def settle(self) -> None:
        """Do now what server and interpreter would do at times of their own, so that no case is disturbed by another.

        What other cases and imports have left is not looked through again in this one.
        """
        if not self.settles:
            return
        for database in (OURS, FLOOR):
            await self.vacuum(database)
        peer = await self.connect(PEER)
        await peer.execute("VACUUM (ANALYZE)")
        await peer.close()
        await self.watcher.execute("CHECKPOINT")
        gc.collect()
        gc.freeze()

    async def settings(self) -> dict[str, str]:
        """Read the settings that decide about the figures."""
        return {name: str(await self.watcher.fetchval("SELECT current_setting($1)", name)) for name in _SETTINGS}


@contextmanager
def server(major: int) -> Iterator[EmbeddedServer]:
    """Run a durable server."""
    folder = Path(tempfile.mkdtemp(prefix="agentruns-bench-"))
    folder.chmod(0o755)  # the server may be another account, which has to pass
    try:
        with EmbeddedServer(folder / "data", major=major) as embedded:
            yield embedded
    finally:
        shutil.rmtree(folder)


@asynccontextmanager
async def place(base: URL, *, settles: bool = True) -> AsyncIterator[Place]:
    """Make the databases."""
    query = base.query
    watcher = await asyncpg.connect(
        host=str(query["host"]), port=int(str(query["port"])), user=base.username, database="postgres"
    )
    made = Place(base=base, watcher=watcher, settles=settles)
    try:
        await watcher.execute("ALTER SYSTEM SET autovacuum = off")  # see `settle`
        await watcher.execute("SELECT pg_reload_conf()")
        await watcher.execute(f"CREATE DATABASE {_MIGRATED}")
        engine = create_async_engine(made.url(_MIGRATED), poolclass=NullPool)
        async with engine.connect() as connection:
            await connection.run_sync(migrations.upgrade)
        for database in (OURS, FLOOR):
            await made.create(database)
        await watcher.execute(f"CREATE DATABASE {PEER}")
        yield made
    finally:
        await watcher.close()
