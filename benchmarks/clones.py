"""Many ended runs at once: copies that SQL makes of runs that the library itself has submitted, driven and ended."""

from __future__ import annotations

from typing import Final

import click
from attrs import frozen

from benchmarks.floor import columns_of
from benchmarks.place import Connection

#: The tables that a run of three nodes writes, and none other.
_TABLES: Final = (
    "runs",
    "agent_submission_keys",
    "agent_admissions",
    "run_events",
    "run_checkpoints",
    "node_attempts",
    "node_results",
    "run_outcomes",
)
#: Runs that one statement for each table makes.
_SET: Final = 5_000
#: What is copied is consistent as it is, so nothing is checked; and what a crash takes away is made again.
_SETTINGS: Final = "SET session_replication_role = replica; SET synchronous_commit = off"
_COPIES: Final = "CREATE TEMP TABLE copies (old_id uuid, new_id uuid)"
_CHOOSE: Final = """
INSERT INTO copies SELECT run_id, uuidv7() FROM original_runs CROSS JOIN generate_series(1, $1) LIMIT $2
"""
#: A key stands for one run only.
_NEW_KEY: Final = "sha256(c.new_id::text::bytea)"


@frozen
class _Cloner:
    """A connection, and the statement that copies the rows of each table."""

    connection: Connection
    statements: tuple[str, ...]

    async def copy(self, runs: int, *, originals: int) -> None:
        """Make some runs."""
        async with self.connection.transaction():
            await self.connection.execute("TRUNCATE copies")
            await self.connection.execute(_CHOOSE, -(-runs // originals), runs)
            for statement in self.statements:
                await self.connection.execute(statement)


async def clone(connection: Connection, runs: int) -> None:
    """Copy the ended runs of a database over and over, until there are so many of them."""
    await connection.execute(_SETTINGS)
    await connection.execute(_COPIES)
    for table in _TABLES:
        await connection.execute(f"CREATE TEMP TABLE original_{table} AS SELECT * FROM agentruns.{table}")
    originals = int(await connection.fetchval("SELECT count(*) FROM original_runs"))
    cloner = _Cloner(connection, tuple([await _statement(connection, table) for table in _TABLES]))
    for made in range(originals, runs, _SET):
        click.echo(f"{made:,} of {runs:,} ended runs", err=True)
        await cloner.copy(min(_SET, runs - made), originals=originals)
    await connection.execute("RESET session_replication_role; RESET synchronous_commit")


async def _statement(connection: Connection, table: str) -> str:
    types = await columns_of(connection, table)
    values = ", ".join(_value(name, kind) for name, kind in types.items())
    return f"""
    INSERT INTO agentruns.{table} ({", ".join(types)})
    SELECT {values} FROM original_{table} AS o JOIN copies AS c ON o.run_id = c.old_id
    """


def _value(column: str, kind: str) -> str:
    """Give ids and keys anew, and everything else as it is."""
    if column == "run_id":
        return "c.new_id"
    if column == "key_digest":
        return _NEW_KEY
    if kind == "uuid":
        return f"CASE WHEN o.{column} IS NOT NULL THEN uuidv7() END"
    return f"o.{column}"
