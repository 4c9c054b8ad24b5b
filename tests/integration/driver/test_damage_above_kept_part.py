"""What a process has folded before it does not fold again; what is altered above that, it finds as if it had."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import define
from sqlalchemy import Table

from agentruns.domain.graph.returns import Continue, Finish
from agentruns.domain.ids import RunId
from agentruns.errors import CorruptDataError, ExecutableGraphUnavailableError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.kept_runs import KeptRuns
from agentruns.runtime.replay import ReplayedRun, RunReader
from agentruns.store.tables import attempts, checkpoints, events, results, runs
from agentruns.testing.drives import TENANT, DriveWorld, builder
from agentruns.testing.tampering import Record, superuser

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
#: A start, a completion and a barrier for each step, two steps for each drive.
EVENTS = 6
#: Columns of the run row that are no evidence, and those that say which run it is.
NO_EVIDENCE = {
    *("fencing_epoch", "lease_attempt_id", "lease_acquired_at", "lease_renewed_at", "lease_expires_at"),
    *("quarantined_at", "scheduler_ready_at", "scheduler_not_before", "trace_context", "tenant_id", "run_id"),
}


def circle() -> Any:
    graph = builder()

    @graph.node(entry=True, then="a", terminal=True)
    async def a(context: Any) -> Any:
        count = context.state.get("count", 0) + 1
        return Finish({}) if count == 100 else Continue({"count": count})

    return graph.build()


@define
class Remembering:
    """Read a run again and again, each time with the same part of it kept.

    Attributes:
        first: the run as far as it is kept.
    """

    reader: RunReader
    kept: KeptRuns
    first: ReplayedRun

    @property
    def head(self) -> int:
        """Where what is kept ends."""
        assert self.first.state.head is not None
        return int(self.first.state.head.sequence)

    async def read(self) -> ReplayedRun:
        """Read what came after the part that is kept."""
        self.kept.keep(self.first.state, self.first.graph, self.first.intent)
        return await self.reader.read(TENANT, self.first.state.run_id)

    async def finds(self) -> bool:
        """Read, and say whether something was found."""
        try:
            await self.read()
        except (CorruptDataError, ExecutableGraphUnavailableError):
            return True
        return False


async def remembering(world: DriveWorld, run_id: RunId) -> Remembering:
    """Fold a run that was driven once, and let it be driven on by others."""
    assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
    kept = KeptRuns()
    reader = RunReader(world.store, world.executables, kept=kept)
    known = Remembering(reader, kept, await reader.read(TENANT, run_id))
    assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
    return known


@pytest.mark.parametrize("table", [events, checkpoints, attempts, results, runs], ids=lambda each: str(each.name))
def test_LED_03_every_change_above_the_kept_head_is_found(in_world: InWorld, table: Table) -> None:
    async def work(world: DriveWorld) -> None:
        known = await remembering(world, await world.submitted())
        altered = 0
        async with superuser(world.url) as connection:
            record = Record(connection, table)
            rows = [row for row in await record.rows() if table is runs or row["sequence"] > known.head]
            for row in rows:
                for name in [name for name in row.keys() - NO_EVIDENCE if row[name] is not None]:
                    async with record.with_other(row, name):
                        assert await known.finds(), name
                    altered += 1
                if table is runs:
                    continue
                await record.remove(row)
                assert await known.finds()
                await record.add(row)
                step = "superstep" if "superstep" in row else "sequence"
                extra = {**row, step: row[step] + 100}
                await record.add(extra)
                assert await known.finds()
                await record.remove(extra)
        assert altered >= len(rows) * 5 > 0
        report = (await known.read()).report
        assert (report.prefix_sequence, report.events_verified) == (known.head, EVENTS)

    in_world(work, circle(), lease=LONG, maximum_durable_events=EVENTS)
