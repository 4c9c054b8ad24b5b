"""What a step of a run writes, and that no column is there for nothing."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

import agentruns
from agentruns.domain.graph.returns import Finish
from agentruns.orm import Base
from agentruns.runtime.agent_loop import AgentLoopOutcome, DurableAgentLoop
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]
Within = Callable[[str, Callable[[Connection], Any]], Any]

#: A completion, a barrier and the next start: three events, the result, the checkpoint, the attempt and the run row.
WRITTEN = {"run_events": 3, "node_results": 1, "run_checkpoints": 1, "node_attempts": 1, "runs": 1}
MOST = 8


def test_DB_11_a_step_of_one_node_is_one_commit_of_seven_rows(in_world: InWorld) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def b(_context: Any) -> None:
        arrived.set()
        await go_on.wait()

    async def work(world: DriveWorld) -> None:
        driving = asyncio.create_task(world.driven(await world.submitted()))
        async with asyncio.timeout(10):
            await arrived.wait()
        # The node runs, so the step before it is the last thing that was written.
        (head,) = await world.rows("SELECT xmin::text AS xmin FROM agentruns.run_events ORDER BY sequence DESC LIMIT 1")
        found = {}
        for table in Base.metadata.sorted_tables:
            counted = f"SELECT count(*) AS n FROM agentruns.{table.name} WHERE xmin::text = :xmin"  # noqa: S608  # our own table
            (row,) = await world.rows(counted, xmin=head.xmin)
            if row.n:
                found[table.name] = row.n
        assert found == WRITTEN
        assert sum(found.values()) <= MOST
        go_on.set()
        await driving

    nodes = {"a": lambda _context: {"a": 1}, "b": b, "c": lambda _context: Finish({})}
    in_world(work, chain(**nodes), lease=timedelta(minutes=4))


UPDATES = text("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'runs'")
RUNS, RENEWALS, NODES = 12, 3, 4
LONG = timedelta(minutes=1)


def test_L4_of_all_updates_of_a_run_s_row_its_end_alone_touches_an_index(
    in_world: InWorld, within: Within, owner_url: str
) -> None:
    async def work(world: DriveWorld) -> None:
        # Nothing beside the runs: each statement of somebody else's keeps old versions of rows while it lasts.
        async with AgentRunStore(world.store_url, StoreOptions(lease_duration=LONG, notifies=False)) as store:
            runs, loop = DurableAgentRuns(store, world.executables), DurableAgentLoop(store, world.executables)
            quiet = DriveWorld(world.url, world.bundle, store, runs, loop, world.executables)
            for _ in range(RUNS):
                held = await quiet.claimed(await quiet.submitted())
                for number in range(1, RENEWALS + 1):
                    desired = held.lease.expires_at.plus(timedelta(seconds=number))
                    await store.renew(held.fence, desired=desired)
                assert (await loop.run(held, quiet.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED

    def updates(connection: Connection) -> tuple[int, int]:
        row = connection.execute(UPDATES).one()
        return row.n_tup_upd, row.n_tup_upd - row.n_tup_hot_upd

    nodes = {f"n{number}": (lambda _context: None) for number in range(1, NODES)}
    in_world(work, chain(**nodes, z=lambda _context: Finish({})), lease=LONG)
    # A claim, the renewals, and as many commits as there are nodes and one: each is one row.
    expected = RUNS * (1 + RENEWALS + NODES + 1)
    gives_up_at = time.monotonic() + 60
    while (found := within(owner_url, updates))[0] < expected and time.monotonic() < gives_up_at:
        time.sleep(0.1)  # connections report what they did when they end, or have been idle
    assert found[0] == expected
    # The server's own upkeep may look at a page in the wrong moment.
    assert RUNS <= found[1] <= RUNS + NODES


#: Columns that a constraint, an index or a view would not outlive; those that are merely not null are not among them.
DEPENDED_ON = """
    SELECT DISTINCT relname, attname FROM pg_depend
        JOIN pg_class ON pg_class.oid = refobjid
        JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
        LEFT JOIN pg_constraint ON classid = 'pg_constraint'::regclass AND pg_constraint.oid = objid
    WHERE refclassid = 'pg_class'::regclass AND refobjsubid > 0 AND relnamespace = 'agentruns'::regnamespace
        AND relkind = 'r' AND classid IN ('pg_constraint'::regclass, 'pg_rewrite'::regclass, 'pg_class'::regclass)
        AND contype IS DISTINCT FROM 'n'"""


def test_DB_11_every_column_is_used_by_an_index_a_constraint_a_statement_or_a_view(
    within: Within, owner_url: str
) -> None:
    def depended_on(connection: Connection) -> set[tuple[str, str]]:
        return {(row.relname, row.attname) for row in connection.execute(text(DEPENDED_ON))}

    package = Path(agentruns.__file__).parent
    places = (package / "store", package / "migrations")
    sources = [path.read_text(encoding="utf-8") for place in places for path in place.rglob("*.py")]
    needed = within(owner_url, depended_on)
    others = {
        (table.name, column.name)
        for table in Base.metadata.sorted_tables
        for column in table.columns
        if (table.name, column.name) not in needed
    }
    words = set(re.findall(r"\w+", " ".join(sources)))
    assert sorted(each for each in others if each[1] not in words) == []
    # Few are left to statements alone.
    assert len(others) < len(needed) / 4
