"""A standby, which only reads: a server that was migrated, stopped and told to follow."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.operations.embedded import EmbeddedServer
from agentruns.store.verification import SchemaReport, verify_schema

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A directory that the server's account may pass."""
    directory = Path(tempfile.mkdtemp(prefix="agentruns-test-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory / "data"
    shutil.rmtree(directory)


def test_a_standby_verifies(data_dir: Path, run: Run, server: Any) -> None:
    def verified(connection: Connection) -> SchemaReport:
        assert connection.execute(text("SELECT pg_is_in_recovery()")).scalar_one() is True
        return verify_schema(connection)

    async def call(url: Any, work: Callable[[Connection], Any], **options: Any) -> Any:
        async with create_async_engine(url, poolclass=NullPool, **options).connect() as connection:
            return await connection.run_sync(work)

    with EmbeddedServer(data_dir, major=server.major, durable=False) as primary:
        run(call(primary.url, migrations.upgrade))
    (data_dir / "cluster" / "standby.signal").touch()
    with EmbeddedServer(data_dir, major=server.major, durable=False) as standby:
        for options in ({}, {"isolation_level": "AUTOCOMMIT"}):
            assert run(call(standby.url, verified, **options)).revisions[-1] == "agentruns_0016"
