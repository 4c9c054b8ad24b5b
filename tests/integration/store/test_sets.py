"""Sets that travel as the text of arrays, and what the server makes of them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, DateTime, Text, Uuid, select
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.ext.asyncio import create_async_engine

from agentruns.store.sets import ItemSet

Run = Callable[[Coroutine[Any, Any, Any]], Any]

WORDS = ["", '"', "\\", "NULL", "null", "{}", ",", " a ", "é", "\n", "\\x00", None, 'a","b', '\\"', "tenant-1"]
ROWS = [
    (
        None if n % 3 == 0 else f"0198c5a4-7b1e-7c3d-8f4a-{n:012x}",
        None if n % 4 == 0 else -n,
        None if n % 5 == 0 else n % 2 == 0,
        None if n % 6 == 0 else datetime(2026, 12, 1, 0, 30, 0, n, tzinfo=UTC),
        word,
        None if n % 7 == 0 else bytes([n, 0, 255]) * 10,
        None if n % 8 == 0 else bytes(range(256)),
    )
    for n, word in enumerate(WORDS)
]
ITEMS = ItemSet(
    "item",
    {
        "id": Uuid(as_uuid=False),
        "count": BigInteger(),
        "is_new": Boolean(),
        "at": DateTime(timezone=True),
        "word": Text(collation="C"),
        "digest": BYTEA(),
        "body": BYTEA(),
    },
)


def test_the_server_reads_every_value_of_a_set_as_it_was(database_url: str, run: Run) -> None:
    async def scenario() -> None:
        engine = create_async_engine(database_url)
        source = ITEMS.source()
        async with engine.connect() as connection:
            found = await connection.execute(select(source).order_by(source.c.n), ITEMS.parameters(ROWS))
            assert [(*row[:-1],) for row in found] == ROWS
            with_words = ITEMS.parameters([(*row[:4], row[4] or "", *row[5:]) for row in ROWS[2:8]])
            found = await connection.execute(select(source).order_by(source.c.n), with_words)
            assert [row.word for row in found] == WORDS[2:8]
            assert (await connection.execute(select(source), ITEMS.parameters([]))).all() == []
        await engine.dispose()

    run(scenario())
