"""The floor of a run: what its drive wrote, written again by the bare driver, a statement for each commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, cast

from asyncpg import Record
from attrs import field, frozen
from sqlalchemy import Table

from agentruns.orm.base import changeable_columns
from agentruns.orm.runs import RunRow
from benchmarks.floor import Floor, columns_of, connected, read_admissions
from benchmarks.place import FLOOR, OURS, Connection, Place

#: The head of the journal after each commit that durability asks for, in a run of three nodes: the start of the first
#: node; its completion, the barrier and the start of the second; the same again; completion and end.
HEADS: Final = (2, 5, 8, 10)

#: What a drive inserts; each row names the event that it was committed with.
_TABLES: Final = ("run_events", "node_attempts", "node_results", "run_checkpoints", "run_outcomes")
_KEY: Final = ("tenant_id", "run_id")
_CHANGED: Final = changeable_columns(cast("Table", RunRow.__table__))
_VERSIONS: Final = "public.run_versions"

#: Writes down every version of a run's row.
_WATCH: Final = f"""
CREATE TABLE IF NOT EXISTS {_VERSIONS} (LIKE agentruns.runs);
CREATE OR REPLACE FUNCTION public.keep_version() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO {_VERSIONS} SELECT NEW.*; RETURN NULL; END $$;
CREATE TRIGGER keep_version AFTER UPDATE ON agentruns.runs FOR EACH ROW EXECUTE FUNCTION public.keep_version();
"""
_UNWATCH: Final = f"DROP TRIGGER keep_version ON agentruns.runs; DROP TABLE {_VERSIONS}"

#: The rows of one commit: those that are inserted, by their table, and the new version of the run's row.
Commit: TypeAlias = "Mapping[str, Sequence[Record]]"
#: All that one drive wrote.
Drive: TypeAlias = "Sequence[Commit]"


@frozen(kw_only=True)
class FloorRuns:
    """Connections to the floor's database, and the columns of its tables."""

    idle: asyncio.LifoQueue[Connection]
    types: Mapping[str, Mapping[str, str]]
    _statements: dict[tuple[str, ...], str] = field(factory=dict, init=False)

    async def write(self, run: Drive) -> None:
        """Write what the drive of one run wrote, commit by commit."""
        await self.write_set([run])

    async def write_set(self, runs: Sequence[Drive]) -> None:
        """Write what the drives of some runs wrote; they share each of their commits."""
        for commits in zip(*runs, strict=True):
            rows = {table: [row for commit in commits for row in commit[table]] for table in commits[0]}
            tables = tuple(rows)
            if tables not in self._statements:
                self._statements[tables] = self._statement(tables)
            connection = await self.idle.get()
            await connection.execute(self._statements[tables], *_arrays(rows))
            self.idle.put_nowait(connection)

    def _statement(self, tables: Sequence[str]) -> str:
        """Insert into each table, and update the runs, from one array for each column."""
        first, parts = 1, []
        for table in tables:
            types = self.types[table]
            arrays = ", ".join(f"${first + place}::{name}[]" for place, name in enumerate(types.values()))
            first += len(types)
            parts.append(f"w_{table} AS ({_write(table, types, arrays)})")
        return f"WITH {', '.join(parts)} SELECT 1"


@asynccontextmanager
async def opened(place: Place, *, connections: int) -> AsyncIterator[FloorRuns]:
    """Open connections, and read from the tables what the statements have to name."""
    async with connected(place, connections=connections) as idle:
        connection = await idle.get()
        types = {table: await columns_of(connection, table) for table in ("runs", *_TABLES)}
        idle.put_nowait(connection)
        yield FloorRuns(idle=idle, types=types)


@asynccontextmanager
async def watching(place: Place) -> AsyncIterator[None]:
    """Let the server keep each version of the rows of runs, and forget them afterwards."""
    connection = await place.connect(OURS)
    await connection.execute(_WATCH)
    try:
        yield
    finally:
        await connection.execute(_UNWATCH)
        await connection.close()


async def copy_admissions(place: Place, floor: Floor, runs: Sequence[tuple[str, str]]) -> None:
    """Admit in the floor's database what was only submitted in ours."""
    for admission in await read_admissions(place, runs):
        await floor.write(admission)


async def read_drives(place: Place, runs: Sequence[tuple[str, str]]) -> list[Drive]:
    """Read back what the library wrote in drives of these runs that were watched, commit by commit."""
    source = await place.connect(OURS)
    found = [await _drive(source, run) for run in runs]
    await source.close()
    return found


async def check_equal(place: Place, runs: Sequence[tuple[str, str]]) -> None:
    """Insist on the same rows in both databases, byte by byte."""
    ids = [run_id for _, run_id in runs]
    ours, theirs = await place.connect(OURS), await place.connect(FLOOR)
    for table in ("runs", *_TABLES):
        rows = f"SELECT t::text FROM agentruns.{table} AS t WHERE run_id = ANY($1) ORDER BY 1"
        assert await theirs.fetch(rows, ids) == await ours.fetch(rows, ids), table
    await ours.close()
    await theirs.close()


async def _drive(source: Connection, run: tuple[str, str]) -> Drive:
    of_run = "WHERE tenant_id = $1 AND run_id = $2"
    rows = {table: await source.fetch(f"SELECT * FROM agentruns.{table} {of_run}", *run) for table in _TABLES}
    versions = {row["head_sequence"]: row for row in await source.fetch(f"SELECT * FROM {_VERSIONS} {of_run}", *run)}
    commits: list[Commit] = []
    for before, head in zip((1, *HEADS), HEADS, strict=False):
        inserted = {table: [row for row in of if before < row["sequence"] <= head] for table, of in rows.items()}
        commits.append({"runs": [versions[head]], **{table: of for table, of in inserted.items() if of}})
    return commits


def _write(table: str, types: Mapping[str, str], arrays: str) -> str:
    if table != "runs":
        return f"INSERT INTO agentruns.{table} SELECT * FROM unnest({arrays})"
    changed = ", ".join(f"{name} = u.{name}" for name in types if name in _CHANGED)
    where = " AND ".join(f"r.{name} = u.{name}" for name in _KEY)
    return f"UPDATE agentruns.runs AS r SET {changed} FROM unnest({arrays}) AS u ({', '.join(types)}) WHERE {where}"


def _arrays(rows: Commit) -> list[list[Any]]:
    """Turn the rows of each table into one list for each column."""
    return [list(column) for of_table in rows.values() for column in zip(*of_table, strict=True)]
