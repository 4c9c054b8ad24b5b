"""The floor: the bytes that the library wrote, written again by the bare driver in as few statements as possible."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from attrs import frozen

from benchmarks.place import FLOOR, OURS, Connection, Place

#: The tables that an admission writes one row into, the run's own first.
TABLES: Final = ("runs", "agent_submission_keys", "run_events", "run_checkpoints", "agent_admissions")

_RUN: Final = "tenant_id = $1 AND run_id = $2"
_COLUMNS: Final = """
SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute
WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_LOAD: Final = """
SELECT r.*, k.*, e.*, c.checkpoint_id, c.ready, c.digest, a.*
FROM agentruns.runs AS r
JOIN agentruns.agent_submission_keys AS k USING (tenant_id, run_id)
JOIN agentruns.run_events AS e USING (tenant_id, run_id)
JOIN agentruns.run_checkpoints AS c USING (tenant_id, run_id)
JOIN agentruns.agent_admissions AS a USING (tenant_id, run_id)
WHERE r.tenant_id = $1 AND r.run_id = $2 AND e.sequence = 1 AND c.superstep = 0
"""

#: The values of all rows of one admission, table by table; it begins with tenant and run.
Values = list[Any]


@frozen(kw_only=True)
class Floor:
    """Connections to the floor's database, each used by one caller at a time, and the two ways to write admissions.

    Attributes:
        single: writes one row into each table.
        many: writes rows into each table, from one array for each column.
    """

    idle: asyncio.LifoQueue[Connection]
    single: str
    many: str

    async def write(self, admission: Values) -> None:
        """Write what one admission wrote."""
        async with self._connection() as connection:
            await connection.execute(self.single, *admission)

    async def write_set(self, admissions: Sequence[Values]) -> None:
        """Write what some admissions wrote, in one statement."""
        columns = [list(column) for column in zip(*admissions, strict=True)]
        async with self._connection() as connection:
            await connection.execute(self.many, *columns)

    async def read(self, admission: Values) -> None:
        """Read the rows that a load of a fresh run needs, by its id."""
        async with self._connection() as connection:
            found = await connection.fetch(_LOAD, *admission[:2])
        assert len(found) == 1

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        connection = await self.idle.get()
        try:
            yield connection
        finally:
            self.idle.put_nowait(connection)


@asynccontextmanager
async def connected(place: Place, *, connections: int) -> AsyncIterator[asyncio.LifoQueue[Connection]]:
    """Open connections to the floor's database."""
    async with AsyncExitStack() as stack:
        idle: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        for _ in range(connections):
            connection = await place.connect(FLOOR)
            stack.push_async_callback(connection.close)
            idle.put_nowait(connection)
        yield idle


async def columns_of(connection: Connection, table: str) -> dict[str, str]:
    """Read the columns of a table and their types, in their order."""
    found = await connection.fetch(_COLUMNS, f"agentruns.{table}")
    return {row["attname"]: row["type"] for row in found}


@asynccontextmanager
async def opened(place: Place, *, connections: int) -> AsyncIterator[Floor]:
    """Open connections, and read from the tables what the statements have to name."""
    async with connected(place, connections=connections) as idle:
        connection = await idle.get()
        types = [[*(await columns_of(connection, table)).values()] for table in TABLES]
        idle.put_nowait(connection)
        yield Floor(idle=idle, single=_inserts(types, _values), many=_inserts(types, _arrays))


async def copy_graphs(place: Place) -> None:
    """Give the floor's database the graphs, which an admission's row refers to."""
    source, target = await place.connect(OURS), await place.connect(FLOOR)
    for row in await source.fetch("SELECT * FROM agentruns.graph_definitions"):
        places = ", ".join(f"${number}" for number in range(1, len(row) + 1))
        await target.execute(
            f"INSERT INTO agentruns.graph_definitions VALUES ({places}) ON CONFLICT DO NOTHING", *row.values()
        )
    await source.close()
    await target.close()


async def read_admissions(place: Place, runs: Sequence[tuple[str, str]]) -> list[Values]:
    """Read back the rows that the library wrote for runs that were only submitted, one list for each run."""
    source = await place.connect(OURS)
    rows = [
        [await source.fetchrow(f"SELECT * FROM agentruns.{table} WHERE {_RUN}", *run) for table in TABLES]
        for run in runs
    ]
    await source.close()
    return [[value for row in of_run if row is not None for value in row.values()] for of_run in rows]


def _inserts(types: Sequence[Sequence[str]], source: Callable[[int, Sequence[str]], str]) -> str:
    """Write a statement that inserts into each table from parameters, counted on from table to table."""
    first, parts = 1, []
    for table, of_table in zip(TABLES, types, strict=True):
        parts.append(f"i_{table} AS (INSERT INTO agentruns.{table} {source(first, of_table)})")
        first += len(of_table)
    return f"WITH {', '.join(parts)} SELECT 1"


def _values(first: int, types: Sequence[str]) -> str:
    return f"VALUES ({', '.join(f'${first + place}' for place in range(len(types)))})"


def _arrays(first: int, types: Sequence[str]) -> str:
    arrays = (f"${first + place}::{name}[]" for place, name in enumerate(types))
    return f"SELECT * FROM unnest({', '.join(arrays)})"
