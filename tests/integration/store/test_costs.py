"""What each operation costs: its statements, of which each is a commit, pinned so that nobody adds one unseen.

A machine that stands still for a second makes a stamp too old, and it is sent again: the fewest of a few tries count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, EventId
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.supervisor import DurableRunSupervisor
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.sent_statements import sent_statements

InWorld = Callable[..., None]
Operation = Callable[[], Awaitable[object]]
Prepared = Callable[[DriveWorld], Awaitable[Operation]]

GRAPH = chain(a=lambda _context: None, b=lambda _context: None, c=lambda _context: Finish({}))
TRIES = 3


async def ready(world: DriveWorld, count: int) -> tuple[HeldLease, ...]:
    ids = [AttemptId.generate() for _ in range(count)]
    digests = world.executables.graph_digests
    held = await world.store.claim_ready(TENANT, count, attempt_ids=ids, graph_digests=digests)
    assert len(held) == count
    return held


async def fresh_submission(world: DriveWorld) -> Operation:
    key, request = AgentSubmissionKey.generate(), world.request()
    return lambda: world.runs.submit(key, request)


async def known_key(world: DriveWorld) -> Operation:
    submit = await fresh_submission(world)
    await submit()
    return submit


async def set_of_submissions(world: DriveWorld) -> Operation:
    pairs = [(AgentSubmissionKey.generate(), world.request()) for _ in range(64)]
    return lambda: world.runs.submit_many(pairs)


async def load(world: DriveWorld) -> Operation:
    run_id = await world.submitted()
    return lambda: world.runs.load(TENANT, run_id)


async def load_by_key(world: DriveWorld) -> Operation:
    key = AgentSubmissionKey.generate()
    await world.runs.submit(key, world.request())
    return lambda: world.runs.load_by_key(TENANT, key)


async def explain(world: DriveWorld) -> Operation:
    run_id = await world.submitted()
    return lambda: world.runs.explain(TENANT, run_id)


async def one_claim(world: DriveWorld) -> Operation:
    run_id = await world.submitted()
    return lambda: world.claimed(run_id)


async def sixteen_claims(world: DriveWorld) -> Operation:
    for _ in range(16):
        await world.submitted()
    return lambda: ready(world, 16)


async def renewal(world: DriveWorld) -> Operation:
    held = await world.claimed(await world.submitted())
    return lambda: world.store.renew(held.fence, desired=held.lease.expires_at.plus(timedelta(seconds=5)))


async def release(world: DriveWorld) -> Operation:
    held = await world.claimed(await world.submitted())
    return lambda: world.store.release(held.fence)


async def observation(world: DriveWorld) -> Operation:
    held = await world.claimed(await world.submitted())
    return lambda: world.store.observe(held.fence)


async def start(world: DriveWorld) -> Operation:
    held = await world.claimed(await world.submitted())
    hand = await HandDriven.of(world, held.fence)
    return lambda: hand.commit(hand.start())


async def drive_of_three_nodes(world: DriveWorld) -> Operation:
    await world.submitted()
    (held,) = await ready(world, 1)
    return lambda: world.loop.run(held, world.shutdown)


async def cancellation(world: DriveWorld) -> Operation:
    run_id = await world.submitted()
    event_id, failure = EventId.generate(), samples.cancellation()
    return lambda: world.runs.request_cancellation(TENANT, run_id, event_id=event_id, failure=failure)


async def supervision(world: DriveWorld) -> Operation:
    supervisor = DurableRunSupervisor(world.store, world.executables)
    return lambda: supervisor.tick(TENANT)


@pytest.mark.parametrize(
    ("prepare", "statements"),
    [
        (fresh_submission, 1),
        (known_key, 3),  # the insert that finds the key taken, why it did, and the run
        (set_of_submissions, 2),  # one for each connection of the lane
        (load, 1),
        (load_by_key, 1),
        (explain, 2),  # the run, and who could claim it
        (one_claim, 1),
        (sixteen_claims, 1),
        (renewal, 1),
        (release, 1),
        (observation, 1),
        (start, 1),
        (drive_of_three_nodes, 4),  # a start, what lies between two nodes twice, the last completion with the end
        (cancellation, 2),  # the run, and the decision
        (supervision, 3),  # deadlines, interrupts that expired, and timers
    ],
)
def test_an_operation_sends_so_many_statements(in_world: InWorld, prepare: Prepared, statements: int) -> None:
    async def work(world: DriveWorld) -> None:
        counts = []
        for _ in range(TRIES):
            operation = await prepare(world)
            with sent_statements(world.store) as texts:
                await operation()
            counts.append(len(texts))
        assert min(counts) == statements

    in_world(work, GRAPH)
