"""What the driver computes from large documents, it computes beside the event loop: leases are renewed meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field

from agentruns.domain.graph.reducers import GraphReducerReference, MergeReducer
from agentruns.domain.graph.returns import Finish
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.replay import RunReader
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
KIB = 1024
LARGEST = """SELECT sum(octet_length(body)) FROM agentruns.node_results WHERE superstep = 0"""


@define
class Meeting:
    """A reducer that, while it is told to, goes on only once the event loop has run."""

    reference: GraphReducerReference = field(default=MergeReducer().reference)
    is_expected: bool = False
    begun: threading.Event = field(factory=threading.Event)
    met: threading.Event = field(factory=threading.Event)
    seen: list[tuple[bool, str]] = field(factory=list)

    def reduce(self, _state: Any, updates: Sequence[Any]) -> Any:
        if self.is_expected:
            self.begun.set()
            self.seen.append((self.met.wait(timeout=10.0), threading.current_thread().name))
        return {"updates": len(updates)}

    async def come(self) -> int:
        """Tick until the reducer waits, and let it go on."""
        ticks = 0
        while not self.begun.is_set():
            ticks += 1
            await asyncio.sleep(0.001)
        self.met.set()
        return ticks


def reduced_by(reducer: Any, *, size: int, siblings: int) -> Any:
    any_object: dict[str, Any] = {"type": "object"}
    graph = GraphBuilder(
        "sample-graph",
        "1.0.0",
        input=any_object,
        state=any_object,
        output=any_object,
        reducer=reducer,
        owner=samples.principal(),
        maximum_parallelism=siblings,
    )
    for number in range(siblings):
        name = f"a{number}"
        graph.node(name=name, entry=True, then="z_last")(
            lambda _context, name=name: {name: ["x" * KIB] * (size // KIB)}
        )
    graph.node(name="z_last", terminal=True)(lambda _context: Finish({}))
    return graph.build()


def test_a_superstep_of_6_mib_is_folded_while_the_loop_runs_on(in_world: InWorld) -> None:
    meeting = Meeting()

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        assert int((await world.rows(LARGEST))[0][0]) > 6 * KIB * KIB
        meeting.is_expected = True
        coming = asyncio.create_task(meeting.come())
        report = (await RunReader(world.store, world.executables).read(TENANT, run_id)).report
        assert await coming >= 1
        assert report.supersteps_replayed == 1
        # On the loop's own thread nobody would have come.
        assert meeting.seen == [(True, "agentruns-compute")]

    options = {"maximum_durable_events": 9, "node_threads": 1}
    in_world(work, reduced_by(meeting, size=1600 * KIB, siblings=4), lease=LONG, **options)


@pytest.mark.parametrize(("size", "thread"), [(KIB, "MainThread"), (80 * KIB, "agentruns-compute")])
def test_only_what_is_large_is_folded_in_a_thread(in_world: InWorld, size: int, thread: str) -> None:
    meeting = Meeting()
    meeting.met.set()

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        meeting.is_expected = True
        await RunReader(world.store, world.executables).read(TENANT, run_id)
        assert meeting.seen == [(True, thread)]

    in_world(work, reduced_by(meeting, size=size, siblings=1), lease=LONG, maximum_durable_events=3)


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize(("size", "thread"), [(KIB, "MainThread"), (80 * KIB, "agentruns-compute")])
def test_only_what_is_large_is_reduced_in_a_thread_while_a_run_is_driven(
    in_world: InWorld, size: int, thread: str, *, is_fused: bool
) -> None:
    meeting = Meeting(is_expected=True)
    meeting.met.set()

    async def work(world: DriveWorld) -> None:
        assert (await world.driven(await world.submitted())).outcome is AgentLoopOutcome.SUCCEEDED
        assert meeting.seen == [(True, thread)]

    in_world(work, reduced_by(meeting, size=size, siblings=1), lease=LONG, fuse_supersteps=is_fused)


def test_the_loop_runs_on_while_a_superstep_of_6_mib_is_decided(in_world: InWorld) -> None:
    meeting = Meeting(is_expected=True)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        coming = asyncio.create_task(meeting.come())
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert await coming >= 1
        # On the loop's own thread nobody would have come.
        assert meeting.seen == [(True, "agentruns-compute")]

    in_world(work, reduced_by(meeting, size=1600 * KIB, siblings=4), lease=LONG, node_threads=1)
