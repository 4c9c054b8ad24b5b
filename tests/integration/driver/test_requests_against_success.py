"""A request to end a run races its success: whichever commits first is how the run ends."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest
from attrs import evolve

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import EventId, FailureId, RunId
from agentruns.domain.outcome import CancelledOutcome
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.errors import RunNotRunnableError, StaleHeadError
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.samples import cancellation

pytestmark = pytest.mark.slow

InWorld = Callable[..., None]

ROUNDS = 200
AT_ONCE = 10
REQUESTED = "agent-cancellation-requested"
LONG = timedelta(minutes=1)


async def race(world: DriveWorld, run_id: RunId, *, after: float) -> RunStatus:
    """Drive a run and ask for its end in the middle; give the status that the answer to the request promises."""

    async def ask() -> RunStatus:
        await asyncio.sleep(after)
        try:
            asked = await request_cancellation(world, run_id)
        except RunNotRunnableError as refused:
            return RunStatus.SUCCEEDED if refused.status is RunStatus.SUCCEEDED else RunStatus.PENDING
        assert asked.outcome is MutationOutcome.COMMITTED
        return RunStatus.CANCELLED

    async def drive() -> None:
        # A success that comes second is dropped, and the lease given back.
        with suppress(StaleHeadError):
            await world.driven(run_id)

    expected, _ = await asyncio.gather(ask(), drive())
    return expected


async def seconds_undisturbed(world: DriveWorld) -> float:
    """Measure how long so many runs take on this machine when nobody asks for their end."""
    run_ids = [await world.submitted() for _ in range(AT_ONCE)]
    began = time.monotonic()
    await asyncio.gather(*map(world.driven, run_ids))
    return time.monotonic() - began


def test_SUB_22_the_first_commit_decides(in_world: InWorld) -> None:
    chance = random.Random(22)  # the same interleavings each time, as far as a scheduler goes

    async def work(world: DriveWorld) -> None:
        found: Counter[RunStatus] = Counter()
        undisturbed = await seconds_undisturbed(world)
        for _ in range(ROUNDS // AT_ONCE):
            run_ids = [await world.submitted() for _ in range(AT_ONCE)]
            delays = [chance.uniform(0, 2 * undisturbed) for _ in run_ids]
            races = zip(run_ids, delays, strict=True)
            expected = await asyncio.gather(*(race(world, run_id, after=delay) for run_id, delay in races))
            for run_id, status in zip(run_ids, expected, strict=True):
                snapshot = await world.loaded(run_id)
                if snapshot.status is RunStatus.CANCELLATION_REQUESTED:
                    # The drive had ended with its lease given back; whoever claims next confirms.
                    await world.driven(run_id)
                    snapshot = await world.loaded(run_id)
                assert snapshot.status is status
                found[status] += 1
        assert found[RunStatus.SUCCEEDED] + found[RunStatus.CANCELLED] == ROUNDS
        # A test of one outcome only would have raced nothing.
        assert min(found[RunStatus.SUCCEEDED], found[RunStatus.CANCELLED]) > 0

    functions = {"a": lambda _context: {"a": 1}, "b": lambda _context: {"b": 1}, "c": lambda _context: Finish({})}
    in_world(work, chain(**functions), lease=LONG, cancellation_poll_interval=timedelta(milliseconds=20))


def test_SUB_23_the_confirmed_run_has_the_failure_that_was_asked_for(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        failure = evolve(cancellation(message="the order was withdrawn"), id=FailureId.generate())
        event_id = EventId.generate()
        asked = await world.runs.request_cancellation(TENANT, run_id, event_id=event_id, failure=failure)
        await world.driven(run_id)
        snapshot = await world.loaded(run_id)
        assert isinstance(snapshot.outcome, CancelledOutcome)
        assert snapshot.outcome.failure == failure
        assert snapshot.outcome.completed_at == snapshot.changed_at > asked.snapshot.changed_at
        assert snapshot.revision.value == 3
        usage = snapshot.outcome.usage
        # Nothing was started: what is used is the input, and the bytes of the two events before the last.
        data = await world.rows("SELECT octet_length(data) AS size FROM agentruns.run_events WHERE sequence < 3")
        assert (usage.graph_steps.value, usage.event_bytes.value) == (0, sum(row.size for row in data))
        again = await world.runs.request_cancellation(TENANT, run_id, event_id=event_id, failure=failure)
        assert (again.outcome, again.snapshot) == (MutationOutcome.IDEMPOTENT, snapshot)

    in_world(work, chain(a=lambda _context: Finish({})), lease=LONG)
