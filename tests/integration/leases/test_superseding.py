"""Take a run from whoever holds it: the next epoch fences the old owner out at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.numbers import FencingEpoch
from agentruns.errors import (
    AgentRunsError,
    LeaseLostError,
    NotYetAvailableError,
    RunNotFoundError,
    RunNotRunnableError,
    StaleHeadError,
)
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
GRAPH = chain(a=lambda _context: Finish({}))


def test_B11_whoever_is_superseded_can_write_nothing_more(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        first = await world.claimed(run_id)
        with pytest.raises(NotYetAvailableError):
            await world.claimed(run_id)
        second = await world.store.supersede(TENANT, run_id, AttemptId.generate())
        assert (first.fence.epoch.value, second.fence.epoch.value) == (1, 2)
        with pytest.raises(LeaseLostError) as lost:
            await world.store.renew(first.fence, desired=first.lease.expires_at.plus(LONG))
        assert lost.value.reason == "stale_fence"
        with pytest.raises(LeaseLostError):
            await world.loop.run(first, world.shutdown)
        assert await world.kinds() == ["agent-admitted"]
        assert (await world.loop.run(second, world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED
        assert await world.attempts() == [("a", 1, 2)]

    in_world(work, GRAPH, lease=LONG)


def test_of_many_who_expect_the_same_epoch_one_takes_it(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.claimed(run_id)
        answers = await asyncio.gather(
            *(
                world.store.supersede(TENANT, run_id, AttemptId.generate(), expected_epoch=FencingEpoch(1))
                for _ in range(8)
            ),
            return_exceptions=True,
        )
        refused = [answer for answer in answers if isinstance(answer, StaleHeadError)]
        assert len(refused) == 7
        assert {error.reason for error in refused} == {"epoch"}
        (row,) = await world.rows("SELECT fencing_epoch FROM agentruns.runs")
        assert row.fencing_epoch == 2

    in_world(work, GRAPH, lease=LONG)


def test_the_same_id_again_is_answered_with_its_own_lease(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id, attempt_id = await world.submitted(), AttemptId.generate()
        await world.claimed(run_id)
        first = await world.store.supersede(TENANT, run_id, attempt_id, expected_epoch=FencingEpoch(1))
        before = await world.everything()
        again = await world.store.supersede(TENANT, run_id, attempt_id, expected_epoch=FencingEpoch(1))
        assert again.lease == first.lease
        assert await world.everything() == before

    in_world(work, GRAPH, lease=LONG)


def test_what_a_claim_refuses_for_the_run_itself_is_refused_here_too(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        over, unknown = await world.submitted(), RunId.generate()
        await world.driven(over)
        deferred = await world.submitted()
        held = await world.claimed(deferred)
        await world.store.release(held.fence, delay=LONG)
        expected: list[tuple[RunId, type[AgentRunsError]]] = [
            (over, RunNotRunnableError),
            (unknown, RunNotFoundError),
            (deferred, NotYetAvailableError),
        ]
        before = await world.everything()
        for run_id, error in expected:
            with pytest.raises(error):
                await world.store.supersede(TENANT, run_id, AttemptId.generate())
        assert await world.everything() == before

    in_world(work, GRAPH, lease=LONG)
