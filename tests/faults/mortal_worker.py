"""Worker processes that die at a chosen place of their work, forked from one that has imported everything.

Run it as ``python mortal_worker.py URL LOG``. Each line of its input starts one worker: how it dies, and what it works
on. For each the exit status is answered on a line, minus the signal's number when a signal ended it.

A worker dies by SIGKILL: ``before 3`` when it is about to send the third statement that appends to a journal,
``after 3`` when that statement has been answered and nothing of the answer was acted on, and ``ask 1`` inside its first
call of the node ``ask``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

from attrs import define, field

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.graph.merging import MergeOperation
from agentruns.domain.graph.reducers import MergeReducer
from agentruns.domain.graph.returns import Finish, Route, Suspend
from agentruns.domain.ids import RunId
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.waits import NodeWait
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, builder, executables_of, open_world
from agentruns.testing.faults import DeathAt

#: A test moves the leases of the dead into the past; nobody waits for them, and nothing is renewed meanwhile.
LEASE: Final = timedelta(minutes=1)
OPTIONS: Final = AgentWorkerOptions(
    poll_interval=timedelta(milliseconds=10), supervision_interval=timedelta(milliseconds=100)
)
_LAPS: Final = 2
_PAUSES: Final = (0, 0.005, 0.01, 0.02, 0.15)
_ANY: Final = {"type": "object"}


@define
class Fate:
    """Note what a worker does, and end its process where it was told to die.

    Attributes:
        log: a line for each call of a node.
        death: where and when; a worker that lives has none.
    """

    log: Path
    death: DeathAt = field(factory=DeathAt)

    def call(self, context: Any) -> None:
        """Note a call of a node, whole and at once, and pass by its name."""
        line = f"{context.run_id} {context.superstep} {context.node_id} {context.attempt_id}\n"
        file = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, line.encode())
        os.close(file)
        self.meet(str(context.node_id))

    def meet(self, place: str) -> None:
        """Pass by a place, and die there if this is the time."""
        self.death.passes(place)


def everything(fate: Fate) -> GraphBundle:
    """Build a loop, a parallel pair, a wait for an interrupt and one for a timer, in this order."""
    graph = builder()

    @graph.node(entry=True, routes={"again": "lap", "on": ("left", "right")})
    async def lap(context: Any) -> Route:
        fate.call(context)
        laps = context.state.get("laps", 0) + 1
        return Route("again" if laps < _LAPS else "on", {"laps": laps})

    def side(name: str) -> Callable[[Any], Coroutine[Any, Any, dict[str, Any]]]:
        async def turn(context: Any) -> dict[str, Any]:
            fate.call(context)
            return {name: context.state["laps"]}

        return turn

    for name in ("left", "right"):
        graph.node(name=name, then="ask", scheduling=GraphNodeScheduling.JOURNAL_ISOLATED)(side(name))

    @graph.node(wait_to="sleep")
    async def ask(context: Any) -> Suspend:
        fate.call(context)
        question = JournalPayload(
            schema=samples.schema_reference("evidence"),
            kind=JournalEventKind("question"),
            data=BoundedJson.of("go on?"),
        )
        return Suspend(NodeWait.interrupt("approval", request=question), update={"asked": True})

    @graph.node(wait_to="end")
    async def sleep(context: Any) -> Suspend:
        fate.call(context)
        (answered,) = await context.resolutions()
        answer = answered.resolution.payload.data.value
        return Suspend(NodeWait.timer(due_in=timedelta(milliseconds=1)), update={"answer": answer})

    @graph.node(terminal=True)
    async def end(context: Any) -> Finish:
        fate.call(context)
        (fired,) = await context.resolutions()
        return Finish(context.state, {"woken": fired.how.value})

    return graph.build()


def siblings(fate: Fate, seed: int = 0) -> GraphBundle:
    """Build ``a``, ``b`` and ``c``, which pause for as long as chance has it, before ``z_last``.

    The state tells in which order their results were joined. One pause is longer than a complete prefix waits for more,
    so that some results are durable before others.
    """
    chance = random.Random(seed)
    reducer = MergeReducer({"order": MergeOperation.APPEND})
    graph = GraphBuilder(
        "siblings", "1.0.0", input=_ANY, state=_ANY, output=_ANY, reducer=reducer, owner=samples.principal()
    )

    def sibling(name: str) -> Callable[[Any], Coroutine[Any, Any, dict[str, Any]]]:
        async def rest(context: Any) -> dict[str, Any]:
            fate.call(context)
            await asyncio.sleep(chance.choice(_PAUSES))
            asyncio.get_running_loop().call_soon(fate.meet, "result")
            return {"order": [name]}

        return rest

    for name in "abc":
        isolated = GraphNodeScheduling.JOURNAL_ISOLATED
        graph.node(name=name, entry=True, then="z_last", scheduling=isolated)(sibling(name))

    @graph.node(name="z_last", terminal=True)
    async def last(context: Any) -> Finish:
        fate.call(context)
        return Finish(context.state)

    return graph.build()


async def work(url: str, bundle: GraphBundle, run_id: RunId) -> None:
    """Work as one of many workers would, until the run is over."""
    async with open_world(url, bundle, lease=LEASE, maximum_parallel_nodes=3) as world:
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=OPTIONS)
        working = asyncio.create_task(worker.run(world.shutdown))
        await world.runs.wait(TENANT, run_id, timeout=timedelta(minutes=1))
        world.shutdown.drain()
        await working


def live(url: str, log: Path, order: dict[str, Any]) -> NoReturn:
    """Be a worker, and leave the process without what a parent would do on its way out."""
    fate = Fate(log, DeathAt.parse(order["death"]))
    bundle = everything(fate) if order["seed"] is None else siblings(fate, order["seed"])
    fate.death.listen()
    asyncio.run(work(url, bundle, RunId(order["run_id"])))
    os._exit(0)


def main(arguments: Sequence[str]) -> None:
    url, log = arguments
    for graph in (everything, siblings):  # what is made once is made before anybody is forked
        executables_of(graph(Fate(Path(log))))
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            live(url, Path(log), json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
