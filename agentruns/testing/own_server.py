"""A server of a test's own, which it may stop, kill and configure."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.operations.embedded import EmbeddedServer


@contextmanager
def own_server(*, major: int) -> Iterator[EmbeddedServer]:
    """Run a server with a migrated database, and remove it with its directory."""
    # The server's account must reach it, and cannot pass the directories that pytest makes.
    directory = Path(tempfile.mkdtemp(prefix="agentruns-test-", dir="/tmp"))
    directory.chmod(0o755)
    server = EmbeddedServer(directory / "server", major=major, durable=False)
    try:
        server.start()
        asyncio.run(_migrate(server.url))
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


async def _migrate(url: URL) -> None:
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(migrations.upgrade)
    await engine.dispose()
