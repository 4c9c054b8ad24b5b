"""In which order one worker starts the runs of a tenant, and that nobody's errors change it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from attrs import define, field

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.domain.status import RunStatus
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.work_report import WorkReport
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.isolating import flip

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
#: A run was ready so many microseconds ago: neither in the order of their admission nor in that of their ids.
SINCE = (5, 3, 9, 1, 7, 2, 8, 6, 4)


class Abandoned(BaseException):
    """What is no failure of a node."""


@define
class Line:
    """A graph whose only node notes whose it is, and fails for some."""

    started: list[RunId] = field(factory=list)
    fails: dict[RunId, BaseException] = field(factory=dict)

    def graph(self) -> Any:
        async def a(context: Any) -> Finish:
            self.started.append(context.run_id)
            if context.run_id in self.fails:
                raise self.fails[context.run_id]
            return Finish({})

        return chain(a=a)

    async def submitted(self, world: DriveWorld) -> list[RunId]:
        """Submit runs, and give them in the order in which they are to be claimed."""
        since: dict[RunId, int] = {}
        for micros in SINCE:
            run_id = await world.submitted()
            since[run_id] = micros
            await world.rows(
                "UPDATE agentruns.runs SET scheduler_ready_at = timestamptz '2026-01-01Z' - :since * interval '1 us'"
                " WHERE run_id = cast(:run_id AS uuid)",
                since=micros,
                run_id=run_id.text,
            )
        return sorted(since, key=lambda run_id: -since[run_id])


async def worked(world: DriveWorld) -> WorkReport:
    options = AgentWorkerOptions(slots=1, supervision_interval=None)
    worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
    return await worker.run_until_idle()


def test_SCH_02_runs_of_a_tenant_are_started_in_the_order_in_which_they_became_available(in_world: InWorld) -> None:
    line = Line()

    async def work(world: DriveWorld) -> None:
        in_order = await line.submitted(world)
        report = await worked(world)
        assert line.started == in_order
        assert (report.outcomes, report.errors) == ({AgentLoopOutcome.SUCCEEDED: len(SINCE)}, {})

    in_world(work, line.graph(), lease=LONG)


def test_SCH_02_of_runs_that_became_available_at_one_instant_the_smallest_id_is_first(in_world: InWorld) -> None:
    line = Line()

    async def work(world: DriveWorld) -> None:
        run_ids = await line.submitted(world)
        await world.rows("UPDATE agentruns.runs SET scheduler_ready_at = '2026-01-01Z'")
        await worked(world)
        assert line.started == sorted(run_ids)

    in_world(work, line.graph(), lease=LONG)


def without(run_ids: Iterable[RunId], *others: RunId) -> list[RunId]:
    return [run_id for run_id in run_ids if run_id not in others]


def test_SCH_17_errors_of_runs_change_neither_the_order_nor_the_outcome_of_others(in_world: InWorld) -> None:
    line = Line()

    async def work(world: DriveWorld) -> None:
        in_order = await line.submitted(world)
        damaged, failing, abandoned = in_order[0], in_order[2], in_order[5]
        await flip(world, damaged)
        line.fails = {failing: ValueError(), abandoned: Abandoned()}
        report = await worked(world)
        assert report.outcomes == {AgentLoopOutcome.SUCCEEDED: len(SINCE) - 3, AgentLoopOutcome.FAILED: 1}
        assert report.errors == {"RunQuarantinedError": 1, "Abandoned": 1}
        assert line.started == without(in_order, damaged)
        statuses = {run_id: (await world.loaded(run_id)).status for run_id in without(in_order, damaged)}
        assert statuses.pop(failing) is RunStatus.FAILED
        assert statuses.pop(abandoned) is RunStatus.ACTIVE
        assert set(statuses.values()) == {RunStatus.SUCCEEDED}

    in_world(work, line.graph(), lease=LONG, delay=timedelta(minutes=5))
