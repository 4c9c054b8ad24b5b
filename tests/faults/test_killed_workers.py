"""A worker process is killed inside a node; another one goes on from the record, and repeats nothing that is there."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from agentruns.domain.failure_codes import ATTEMPTS_EXHAUSTED
from agentruns.domain.graph.returns import Finish
from agentruns.domain.outcome import FailedOutcome, SucceededOutcome
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.committer import RunCommitter
from agentruns.runtime.replay import RunReader
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain, open_world
from agentruns.testing.faults import DoomedProcess
from agentruns.testing.hand_driven import HandDriven

InWorld = Callable[..., None]
Run = Callable[[Coroutine[Any, Any, Any]], Any]

SCRIPT = Path(__file__).with_name("doomed_worker.py")
#: A process has to start, on a machine that may have much to do.
PATIENCE = timedelta(seconds=100)
SUCCEEDED = "graph-node-attempt-succeeded"


def _loaded() -> ModuleType:
    specification = importlib.util.spec_from_file_location("doomed_worker", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


DOOMED = _loaded()


def killed(url: str, log: Path, shape: str, *, hangs_in: str) -> AbstractContextManager[DoomedProcess]:
    """Start the process; if nobody kills it, the end of the block does."""
    return DoomedProcess.running([sys.executable, str(SCRIPT), url, str(log), shape, hangs_in])


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async with asyncio.timeout(PATIENCE.total_seconds()):
        while not await condition():  # it happens in another process
            await asyncio.sleep(0.05)


async def finished_by_another(world: DriveWorld, run_id: Any) -> AgentRunSnapshot:
    """Let a worker of this process finish the run."""
    options = AgentWorkerOptions(poll_interval=DOOMED.POLL)
    worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
    working = asyncio.create_task(worker.run(world.shutdown))
    snapshot = await world.runs.wait(TENANT, run_id, timeout=PATIENCE)
    world.shutdown.drain()
    await working
    return snapshot


def calls_of(log: Path) -> Counter[str]:
    return Counter(log.read_text(encoding="utf-8").splitlines())


def test_B6_another_worker_finishes_what_a_killed_one_had_begun(
    database_url: str, owner_url: str, run: Run, tmp_path: Path
) -> None:
    log = tmp_path / "calls"

    async def work() -> None:
        async with open_world(
            owner_url, DOOMED.graph(log, shape="chain"), store_url=database_url, lease=DOOMED.LEASE
        ) as world:
            run_id = await world.submitted()
            with killed(database_url, log, "chain", hangs_in="b") as worker:

                async def is_in_b() -> bool:
                    return log.exists() and "b 1" in calls_of(log)

                await until(is_in_b)
                worker.kill()
            killed_at = time.monotonic()
            snapshot = await finished_by_another(world, run_id)
            # Nobody has to clean up: the lease ends, the next poll claims, and what is left is done.
            assert time.monotonic() - killed_at < DOOMED.LEASE.total_seconds() + 15
            assert isinstance(snapshot.outcome, SucceededOutcome)
            assert snapshot.outcome.result.output.value == {"a": 1, "b": 2}
            # One node has two attempts under rising epochs, every other one has one.
            assert await world.attempts() == [("a", 1, 1), ("b", 1, 1), ("b", 2, 2), ("c", 1, 2)]
            results = await world.rows("SELECT node_id, attempt FROM agentruns.node_results ORDER BY sequence")
            assert [tuple(row) for row in results] == [("a", 1), ("b", 2), ("c", 1)]
            replayed = await RunReader(world.store, world.executables).read(TENANT, run_id)
            assert replayed.report.events_verified == len(await world.kinds()) == 11
            # Each call stands behind its committed start, and none was made twice.
            assert calls_of(log) == Counter(["a 1", "b 1", "b 2", "c 1"])

    run(work())


def test_LEA_14_a_sibling_that_was_durable_before_the_kill_is_not_repeated(
    database_url: str, owner_url: str, run: Run, tmp_path: Path
) -> None:
    log = tmp_path / "calls"

    async def work() -> None:
        bundle = DOOMED.graph(log, shape="fan")
        async with open_world(
            owner_url, bundle, store_url=database_url, lease=DOOMED.LEASE, maximum_parallel_nodes=3
        ) as world:
            run_id = await world.submitted()
            with killed(database_url, log, "fan", hangs_in="b") as worker:

                async def is_a_durable() -> bool:
                    return SUCCEEDED in await world.kinds()

                await until(is_a_durable)
                worker.kill()
            snapshot = await finished_by_another(world, run_id)
            assert isinstance(snapshot.outcome, SucceededOutcome)
            # c had ended too, but stands behind b in the order of the record: it was not durable, so it runs again.
            assert snapshot.outcome.result.output.value == {"a": 1, "b": 2, "c": 2}
            assert await world.attempts() == [
                ("a", 1, 1),
                ("b", 1, 1),
                ("c", 1, 1),
                ("b", 2, 2),
                ("c", 2, 2),
                ("z_last", 1, 2),
            ]
            assert calls_of(log) == Counter(["a 1", "b 1", "c 1", "b 2", "c 2", "z_last 1"])

    run(work())


def test_G7_LEA_15_a_node_that_kills_every_worker_exhausts_its_attempts(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        committer = RunCommitter(world.store)
        for attempt in range(1, 65):
            held = await world.claimed(run_id)
            hand = await HandDriven.of(world, held.fence, committer=committer)
            await hand.commit(hand.start())
            assert hand.state.nodes[next(iter(hand.state.nodes))].attempt == attempt
            # The worker dies here, without a word.
            await world.expire_leases()
        result = await world.driven(run_id)
        assert result.outcome is AgentLoopOutcome.FAILED
        assert result.report.node_attempts_started == 0
        outcome = (await world.loaded(run_id)).outcome
        assert isinstance(outcome, FailedOutcome)
        assert outcome.failure.code == ATTEMPTS_EXHAUSTED
        assert await world.attempts() == [("a", number, number) for number in range(1, 65)]

    in_world(work, chain(a=lambda _context: Finish({})), lease=timedelta(minutes=1))
