"""Worker processes are killed at every commit and inside every node: each run ends as one that nobody disturbed."""

from __future__ import annotations

import asyncio
import json
import random
import runpy
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from signal import SIGKILL
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.outcome import CancelledOutcome, SucceededOutcome
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.waits import WaitResolver
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.replay import RunReader
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.waits import DurableRunWaits
from agentruns.runtime.worker import AgentWorker
from agentruns.testing import samples
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, open_world

pytestmark = pytest.mark.slow

Run = Callable[[Coroutine[Any, Any, Any]], Any]

SCRIPT = Path(__file__).with_name("mortal_worker.py")
MORTAL = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
SEEDS = 50
PATIENCE = timedelta(seconds=60)
#: Calls of the first graph's nodes in a run that nobody disturbs.
CALLS = {"lap": 2, "left": 1, "right": 1, "ask": 1, "sleep": 1, "end": 1}


@frozen
class Ended:
    """What does not depend on how often the workers of a run died.

    Attributes:
        checkpoints: superstep, ready nodes and bytes of the state of each.
        output: of the run.
        steps: supersteps in which a node was started, as the usage counts them.
    """

    checkpoints: tuple[tuple[int, bytes, bytes], ...]
    output: Any
    steps: int


@define
class Workers:
    """Run workers in processes of their own, and look at what they left.

    Attributes:
        log: a line for each call of a node.
        forking: the process that they are forked from.
    """

    world: DriveWorld
    log: Path
    forking: asyncio.subprocess.Process

    async def work(self, run_id: RunId, *, death: str = "", seed: int | None = None) -> int:
        """Let one worker work until it dies or the run is over, and give its exit status."""
        assert self.forking.stdin is not None
        assert self.forking.stdout is not None
        order = json.dumps({"run_id": run_id.text, "death": death, "seed": seed})
        self.forking.stdin.write(f"{order}\n".encode())
        return int(await self.forking.stdout.readline())

    async def ended(self, *deaths: str) -> tuple[Ended, list[int]]:
        """Let workers work that die one after another, and at last one that lives; say how the first ones ended.

        What the run asks is answered as soon as it does, whoever lives then.
        """
        run_id = await self.world.submitted()
        answering = asyncio.create_task(answer(self.world, run_id))
        statuses = []
        for death in deaths:
            statuses.append(await self.work(run_id, death=death))
            await self.world.expire_leases()
        await self._finish(run_id)
        await answering
        return await self.found(run_id), statuses

    async def found(self, run_id: RunId) -> Ended:
        """Read what a run came to; all of its record is folded, and every call held against it."""
        replayed = await RunReader(self.world.store, self.world.executables).read(TENANT, run_id)
        events = await self._rows(run_id, "SELECT 1 FROM agentruns.run_events WHERE")
        assert replayed.report.events_verified == len(events)
        await self.check_calls(run_id)
        outcome = (await self.world.loaded(run_id)).outcome
        assert isinstance(outcome, SucceededOutcome)
        steps = await self._rows(run_id, "SELECT superstep, ready, state FROM agentruns.run_checkpoints WHERE")
        checkpoints = sorted((row.superstep, bytes(row.ready), bytes(row.state)) for row in steps)
        return Ended(tuple(checkpoints), outcome.result.output.value, outcome.result.usage.graph_steps.value)

    async def completions(self, run_id: RunId) -> list[str]:
        """Name the nodes that succeeded, in the order of the journal."""
        query = "SELECT node_id, sequence FROM agentruns.node_results WHERE status = 'succeeded' AND"
        return [row.node_id for row in sorted(await self._rows(run_id, query), key=lambda row: row.sequence)]

    async def check_calls(self, run_id: RunId) -> None:
        """Each call has a committed start of its own, and no node of a step succeeded twice."""
        starts = await self._rows(run_id, "SELECT superstep, node_id, attempt_id FROM agentruns.node_attempts WHERE")
        lines = [line.split(" ", 1) for line in self.log.read_text(encoding="utf-8").splitlines()]
        calls = Counter(call for called, call in lines if called == run_id.text)
        assert set(calls.values()) <= {1}
        assert calls <= Counter(" ".join(map(str, start)) for start in starts)
        query = "SELECT superstep, node_id FROM agentruns.node_results WHERE status = 'succeeded' AND"
        succeeded = await self._rows(run_id, query)
        assert len(set(succeeded)) == len(succeeded)

    async def _finish(self, run_id: RunId) -> None:
        """Let a worker of this process go on from the record until the run is over."""
        world, shutdown = self.world, ShutdownSignal()
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=MORTAL.OPTIONS)
        working = asyncio.create_task(worker.run(shutdown))
        await world.runs.wait(TENANT, run_id, timeout=PATIENCE)
        shutdown.drain()
        await working

    async def _rows(self, run_id: RunId, query: str) -> list[Any]:
        return await self.world.rows(f"{query} run_id = cast(:run_id AS uuid)", run_id=run_id.text)


@asynccontextmanager
async def workers(database_url: str, owner_url: str, log: Path, bundle: GraphBundle) -> AsyncIterator[Workers]:
    """Start the process that workers are forked from; its input's end is its own."""
    pipe = asyncio.subprocess.PIPE
    forking = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), database_url, str(log), stdin=pipe, stdout=pipe
    )
    try:
        options = {"lease": MORTAL.LEASE, "maximum_parallel_nodes": 3}
        async with open_world(owner_url, bundle, store_url=database_url, **options) as world:
            yield Workers(world, log, forking)
    finally:
        assert forking.stdin is not None
        forking.stdin.close()
        await forking.wait()


async def answer(world: DriveWorld, run_id: RunId) -> None:
    """Answer what a run asks, once it does."""
    service = DurableRunWaits(world.store, world.executables)
    async with asyncio.timeout(PATIENCE.total_seconds()):
        while not (waits := await service.outstanding(TENANT, run_id)):  # it happens in another process
            await asyncio.sleep(0.01)
    schema, kind = samples.schema_reference("evidence"), JournalEventKind("answer")
    await service.resolve_interrupt(
        TENANT,
        run_id,
        waits[0].wait_id,
        event_id=EventId.generate(),
        resolution=JournalPayload(schema=schema, kind=kind, data=BoundedJson.of("do")),
        resolver=WaitResolver(principal=samples.principal(), scopes=ScopeSet.of()),
    )


@pytest.mark.parametrize("moment", ["before", "after"])
def test_LED_05_LEA_14_LEA_15_a_worker_killed_at_any_commit_changes_nothing_of_how_its_run_ends(
    database_url: str, owner_url: str, run: Run, tmp_path: Path, moment: str
) -> None:
    async def work() -> None:
        fate = MORTAL.Fate(log := tmp_path / "calls")
        async with workers(database_url, owner_url, log, MORTAL.everything(fate)) as living:
            undisturbed, _ = await living.ended()
            assert undisturbed.output == {"laps": 2, "left": 2, "right": 2, "asked": True, "answer": "do"}
            for number in count(1):
                ended, (status,) = await living.ended(f"{moment} {number}")
                assert ended == undisturbed
                if status == 0:
                    break
                assert status == -SIGKILL
            # Three starts, two laps, the pair, of question and sleep two each; one for the timer, one for the end.
            assert number > 12

    run(work())


def test_LED_05_LEA_14_LEA_15_a_worker_killed_inside_any_node_changes_nothing_of_how_its_run_ends(
    database_url: str, owner_url: str, run: Run, tmp_path: Path
) -> None:
    async def work() -> None:
        fate = MORTAL.Fate(log := tmp_path / "calls")
        async with workers(database_url, owner_url, log, MORTAL.everything(fate)) as living:
            undisturbed, _ = await living.ended()
            deaths = [f"{node} {call}" for node, calls in CALLS.items() for call in range(1, calls + 1)]
            for death in deaths:
                assert await living.ended(death) == (undisturbed, [-SIGKILL])
            # And all of it in one run: each worker dies in the next node that it comes to.
            every = [f"{node} 1" for node in ("lap", "left", "right", "ask", "sleep", "end")]
            assert await living.ended(*every) == (undisturbed, [-SIGKILL] * len(every))

    run(work())


def test_D2_a_request_that_a_killed_worker_never_saw_is_confirmed_by_another(
    database_url: str, owner_url: str, run: Run, tmp_path: Path
) -> None:
    async def work() -> None:
        fate = MORTAL.Fate(log := tmp_path / "calls")
        async with workers(database_url, owner_url, log, MORTAL.everything(fate)) as living:
            # Inside a node, between two, and inside one of a pair.
            for death in ("lap 2", "after 2", "right 1"):
                run_id = await living.world.submitted()
                assert await living.work(run_id, death=death) == -SIGKILL
                await request_cancellation(living.world, run_id)
                await living.world.expire_leases()
                driven = await living.world.driven(run_id)
                assert driven.outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
                assert driven.report.node_attempts_started == 0
                outcome = (await living.world.loaded(run_id)).outcome
                assert isinstance(outcome, CancelledOutcome)
                await living.check_calls(run_id)

    run(work())


def test_G1_siblings_killed_after_any_of_their_results_lead_to_the_same_step(
    database_url: str, owner_url: str, run: Run, tmp_path: Path
) -> None:
    async def work() -> None:
        fate = MORTAL.Fate(log := tmp_path / "calls")
        async with workers(database_url, owner_url, log, MORTAL.siblings(fate)) as living:
            found = set()
            for seed in range(SEEDS):
                run_id = await living.world.submitted()
                death = f"result {random.Random(seed).randint(1, 3)}"
                assert await living.work(run_id, death=death, seed=seed) == -SIGKILL
                await living.world.expire_leases()
                assert (await living.world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
                ended = await living.found(run_id)
                found.add(ended.checkpoints)
                assert await living.completions(run_id) == ["a", "b", "c", "z_last"]
            # Some results were durable before the kill, others were not; a test of one kind only would show little.
            durable = await living.world.rows("SELECT DISTINCT attempt FROM agentruns.node_results WHERE node_id = 'a'")
            assert {row.attempt for row in durable} == {1, 2}
            (checkpoints,) = found
            assert checkpoints[1] == (1, b'["z_last"]', b'{"order":["a","b","c"]}')

    run(work())
