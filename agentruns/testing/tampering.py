"""Alter stored rows behind every guard, one column at a time, and put them back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

from attrs import frozen
from sqlalchemy import Table, and_, insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.orm import Base

Row: TypeAlias = dict[str, Any]

#: An id that stands for nothing.
ELSEWHERE: Final = "01980000-0000-7000-8000-00000000ffff"
#: Another word that the same column could hold.
_OTHER_WORDS: Final = {
    "graph-node-attempt-started": "graph-node-attempt-failed",
    "graph-node-attempt-succeeded": "graph-node-attempt-failed",
    "graph-node-attempt-failed": "graph-node-attempt-succeeded",
    "graph-barrier-continued": "graph-barrier-waiting",
    "agent-admitted": "graph-timer-fired",
    "succeeded": "failed",
    "failed": "succeeded",
    "active": "cancellation_requested",
    "resolved": "fired",
    "fired": "abandoned",
    "abandoned": "resolved",
}


def altered(value: Any) -> Any:
    """Give another value of the same kind; ``None`` stays."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value[:-1] + bytes([value[-1] ^ 1])
    if isinstance(value, datetime):
        return value + timedelta(microseconds=1)
    if isinstance(value, UUID) or (isinstance(value, str) and len(value) == len(ELSEWHERE)):
        return ELSEWHERE
    if isinstance(value, str):
        return _OTHER_WORDS.get(value, f"{value}x")
    return value + 50


@asynccontextmanager
async def superuser(url: str) -> AsyncIterator[AsyncConnection]:
    """Open a connection that no trigger stops, on a database without checks and foreign keys from then on."""
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    async with engine.connect() as connection:
        await connection.execute(text("SET session_replication_role = replica"))
        found = await connection.execute(
            text(
                "SELECT conrelid::regclass::text AS name, conname FROM pg_constraint JOIN pg_class ON"
                " pg_class.oid = conrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace"
                " WHERE nspname = 'agentruns' AND contype IN ('c', 'f')"
            )
        )
        for constraint in found.all():
            await connection.execute(text(f"ALTER TABLE {constraint.name} DROP CONSTRAINT {constraint.conname}"))
        yield connection


@frozen
class Record:
    """Alter the rows of a table one at a time, and put them back as they were."""

    connection: AsyncConnection
    table: Table

    async def execute(self, statement: Any) -> Any:
        """Send a statement in the schema of the tests."""
        return await self.connection.execute(
            statement, execution_options={"schema_translate_map": {Base.metadata.schema: "agentruns"}}
        )

    async def rows(self) -> list[Row]:
        """Read every row."""
        return [found._asdict() for found in await self.execute(self.table.select())]

    async def remove(self, row: Row) -> None:
        """Delete the row of this key."""
        key = and_(*(column == row[column.key] for column in self.table.primary_key.columns))
        await self.execute(self.table.delete().where(key))

    async def add(self, row: Row) -> None:
        """Insert a row."""
        await self.execute(insert(self.table).values(row))

    @asynccontextmanager
    async def with_other(self, row: Row, name: str) -> AsyncIterator[None]:
        """Replace a row by one that differs in a column."""
        other = {**row, name: altered(row[name])}
        await self.remove(row)
        await self.add(other)
        yield
        await self.remove(other)
        await self.add(row)
