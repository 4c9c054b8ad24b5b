"""One migrated database for all of these tests: each changes it in a transaction that is rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

Undone = Callable[[Callable[[Connection], Any]], Any]

#: A session that prints everything differently from the one that made the manifest.
SETTINGS = {
    "TimeZone": "Asia/Tokyo",
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "bytea_output": "escape",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "search_path": "agentruns, public",
}


@pytest.fixture(autouse=True)
def clones_are_verified_once() -> None:
    """Not here: each store verifies what it finds."""


@pytest.fixture(scope="session")
def undone(server: Any) -> Iterator[Undone]:
    """Call a function with a connection in a transaction that is always rolled back: ``undone(work)``."""
    name = server.clone()
    with asyncio.Runner() as runner:
        engine = create_async_engine(server.url(name), connect_args={"server_settings": SETTINGS})
        connection = runner.run(engine.connect().start())

        async def call(work: Callable[[Connection], Any]) -> Any:
            try:
                return await connection.run_sync(work)
            finally:
                await connection.rollback()

        yield lambda work: runner.run(call(work))
        runner.run(connection.close())
        runner.run(engine.dispose())
    server.drop(name)
