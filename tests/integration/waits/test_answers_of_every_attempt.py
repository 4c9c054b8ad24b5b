"""A node that is tried again reads the same answers, in the order in which they were asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from agentruns.domain.failure import SafeAfter
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import WaitId
from agentruns.domain.ledger.records import WaitSettlement
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.waits import NodeWait
from agentruns.errors import NodeFailedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, builder

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
ATTEMPTS = 3


def test_LIF_11_LIF_12_every_attempt_reads_what_was_answered_and_who_waited_is_not_run_again(
    in_world: InWorld, sleeper: Any, payload: Any
) -> None:
    ids = [WaitId.generate() for _ in range(3)]
    asked: list[int] = []
    read: list[Any] = []
    graph = builder()

    @graph.node(entry=True, then="go_on", wait_to="go_on")
    async def ask(context: Any) -> Suspend:
        asked.append(context.attempt)
        if context.attempt == 1:
            raise _again()
        interrupts = [NodeWait.interrupt("input", request=payload(n), id=wait_id) for n, wait_id in enumerate(ids[:2])]
        return Suspend(*interrupts, NodeWait.timer(due_in=timedelta(0), id=ids[2]))

    @graph.node(terminal=True)
    async def go_on(context: Any) -> Finish:
        read.append(await context.resolutions())
        if context.attempt < ATTEMPTS:
            raise _again()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        run_id, service = await world.submitted(), sleeper.service(world)
        while (await world.driven(run_id)).outcome is not AgentLoopOutcome.WAITING:
            pass
        # In the other order than they were asked for.
        for wait_id, answer in ((ids[1], "second"), (ids[0], "first")):
            await service.resolve_interrupt(**sleeper.answering(run_id, wait_id, resolution=payload(answer)))
        while (await world.driven(run_id)).outcome is not AgentLoopOutcome.SUCCEEDED:
            pass
        settled = [await service.settled(TENANT, run_id, wait_id) for wait_id in ids]
        assert [each.how for each in settled] == [WaitSettlement.RESOLVED] * 2 + [WaitSettlement.FIRED]
        assert [each.resolution.payload.data.value for each in settled[:2]] == ["first", "second"]
        assert read == [tuple(settled)] * ATTEMPTS
        # As often as it was started before the wait, and never because of an answer.
        assert asked == [1, 2]
        attempts = [(node, attempt) for node, attempt, _ in await world.attempts()]
        assert attempts == [("ask", 1), ("ask", 2), *(("go_on", number) for number in range(1, ATTEMPTS + 1))]

    in_world(work, graph.build(), lease=LONG)


def _again() -> NodeFailedError:
    return NodeFailedError(failure=samples.failure(retry_advice=SafeAfter(delay=DurationMillis(0))))
