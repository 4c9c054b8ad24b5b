"""A request to end a run, a completion and a takeover meet in every order: each round ends in one legal state."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from itertools import permutations
from typing import Final

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.outcome import CancelledOutcome
from agentruns.errors import LeaseLostError, StaleHeadError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.replay import RunReader
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.hand_driven import HandDriven

pytestmark = pytest.mark.slow

InWorld = Callable[..., None]

GRAPH: Final = chain(a=lambda _context: {"a": 1}, b=lambda _context: Finish({}))
LONG: Final = timedelta(minutes=1)
MOVES: Final = ("request", "complete", "supersede")
#: Of each of the six orders, and of all at once with each of them first: 261 together.
ROUNDS: Final = 29
STARTED, SUCCEEDED = "graph-node-attempt-started", "graph-node-attempt-succeeded"
REQUESTED, CONFIRMED = "agent-cancellation-requested", "agent-cancellation-confirmed"


class Round:
    """One run under way, and the three who want something of it."""

    def __init__(self, world: DriveWorld, hand: HandDriven) -> None:
        self.answers: dict[str, str] = {}
        self.successor: HeldLease
        self._world = world
        self._hand = hand

    @classmethod
    async def begun(cls, world: DriveWorld) -> Round:
        hand = await HandDriven.of(world, (await world.claimed(await world.submitted())).fence)
        await hand.commit(hand.start())
        return cls(world, hand)

    @property
    def run_id(self) -> RunId:
        return self._hand.fence.run_id

    async def take(self, move: str) -> None:
        """Make one move, and keep how it was answered."""
        moves: dict[str, Callable[[], Awaitable[object]]] = {
            "request": lambda: request_cancellation(self._world, self.run_id),
            "complete": lambda: self._hand.committer.commit(self._hand.complete()),
            "supersede": self._supersede,
        }
        try:
            await moves[move]()
        except (StaleHeadError, LeaseLostError) as refused:
            self.answers[move] = refused.reason
        else:
            self.answers[move] = "done"

    async def _supersede(self) -> None:
        self.successor = await self._world.store.supersede(TENANT, self.run_id, AttemptId.generate())


def answer_of_completion(order: Sequence[str]) -> str:
    """A lost fence is the first reason, another head comes after it."""
    before = order[: order.index("complete")]
    return "stale_fence" if "supersede" in before else "journal" if "request" in before else "done"


async def ended(world: DriveWorld, each: Round) -> None:
    """Let whoever took over end the run, and hold its whole record against what was answered."""
    result = await world.loop.run(each.successor, world.shutdown)
    assert result.outcome is AgentLoopOutcome.CANCELLATION_CONFIRMED
    assert isinstance((await world.loaded(each.run_id)).outcome, CancelledOutcome)
    replayed = await RunReader(world.store, world.executables).read(TENANT, each.run_id)
    query = "SELECT kind FROM agentruns.run_events WHERE run_id = cast(:run_id AS uuid) ORDER BY sequence"
    kinds = [row.kind for row in await world.rows(query, run_id=each.run_id.text)]
    completed = [SUCCEEDED] if each.answers["complete"] == "done" else []
    assert kinds == ["agent-admitted", STARTED, *completed, REQUESTED, CONFIRMED]
    assert replayed.report.events_verified == len(kinds)


def test_B9_in_every_order_the_losers_learn_why_and_the_run_ends_once(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        for order in permutations(MOVES):
            rounds = await asyncio.gather(*(Round.begun(world) for _ in range(ROUNDS)))
            for move in order:
                await asyncio.gather(*(each.take(move) for each in rounds))
            wanted = {"request": "done", "complete": answer_of_completion(order), "supersede": "done"}
            assert [each.answers for each in rounds] == [wanted] * ROUNDS
            await asyncio.gather(*(ended(world, each) for each in rounds))

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.parametrize("first", MOVES)
def test_B9_at_once_nobody_meets_a_deadlock_and_the_run_ends_once(in_world: InWorld, first: str) -> None:
    async def work(world: DriveWorld) -> None:
        rounds = await asyncio.gather(*(Round.begun(world) for _ in range(ROUNDS)))
        order = (first, *(move for move in MOVES if move != first))
        await asyncio.gather(*(each.take(move) for each in rounds for move in order))
        found = Counter(each.answers["complete"] for each in rounds)
        assert set(found) <= {"done", "journal", "stale_fence"}
        assert all(each.answers["request"] == each.answers["supersede"] == "done" for each in rounds)
        await asyncio.gather(*(ended(world, each) for each in rounds))

    in_world(work, GRAPH, lease=LONG)
