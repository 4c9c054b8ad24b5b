"""Whatever is sent again with the same ids leaves the rows of the first time, from whichever process it comes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from attrs import frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, CheckpointId, EventId, RunId
from agentruns.domain.ledger.superstep import BarrierIds, SuperstepDraft
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.waits import NodeWait, WaitResolver
from agentruns.errors import AgentSubmissionConflictError, IdConflictError
from agentruns.runtime.committer import CommitPlan, RunCommitter
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.waits import DurableRunWaits
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, builder
from agentruns.testing.hand_driven import HandDriven

InWorld = Callable[..., None]

LONG: Final = timedelta(minutes=1)
#: What a call gave, as far as it says whether something was written.
Answer = Any
#: Send a mutation through the store of some process.
Send = Callable[[AgentRunStore], Awaitable[Answer]]


@frozen
class Mutation:
    """A mutation with its ids, and the same ids with other content where there is other content.

    Attributes:
        is_said: whether the answer tells a repetition from the first time; a lease operation gives the lease.
        outlives: whether it is still a success when another owner has finished the run.
        conflict: what other content under the same ids meets.
    """

    send: Send
    other: Send | None = None
    is_said: bool = True
    outlives: bool = True
    conflict: type[Exception] = IdConflictError


def graph() -> GraphBundle:
    """Ask something first, and go on with a second node."""
    built = builder()

    def ask(_context: Any) -> Suspend:
        return Suspend(NodeWait.interrupt("approval", request=payload({"may": "I"})))

    built.node(name="ask", entry=True, then="go_on", wait_to="go_on")(ask)
    built.node(name="go_on", terminal=True)(lambda _context: Finish({}))
    return built.build()


def payload(data: Any) -> JournalPayload:
    schema, kind = samples.schema_reference("evidence"), JournalEventKind("answer")
    return JournalPayload(schema=schema, kind=kind, data=BoundedJson.of(data))


# --- what is sent ----------------------------------------------------------------------------------------------------


async def submission(world: DriveWorld) -> Mutation:
    key, request = AgentSubmissionKey.generate(), world.request()
    other = world.request({"other": True})
    return Mutation(
        lambda store: DurableAgentRuns(store, world.executables).submit(key, request),
        lambda store: DurableAgentRuns(store, world.executables).submit(key, other),
        conflict=AgentSubmissionConflictError,
    )


async def admission(world: DriveWorld) -> Mutation:
    request = world.request()
    return Mutation(lambda store: DurableAgentRuns(store, world.executables).admit(request))


async def attachment(world: DriveWorld) -> Mutation:
    key, request = AgentSubmissionKey.generate(), world.request()
    await world.runs.admit(request)
    return Mutation(lambda store: DurableAgentRuns(store, world.executables).submit(key, request))


async def cancellation(world: DriveWorld) -> Mutation:
    run_id, event_id = await world.submitted(), EventId.generate()

    def asking(message: str) -> Send:
        failure = samples.cancellation(message=message)
        return lambda store: DurableAgentRuns(store, world.executables).request_cancellation(
            TENANT, run_id, event_id=event_id, failure=failure
        )

    return Mutation(asking("enough"), asking("another reason"))


async def resolution(world: DriveWorld) -> Mutation:
    run_id, event_id = await world.submitted(), EventId.generate()
    await world.driven(run_id)
    (wait,) = await DurableRunWaits(world.store, world.executables).outstanding(TENANT, run_id)

    def answering(data: Any) -> Send:
        return lambda store: DurableRunWaits(store, world.executables).resolve_interrupt(
            TENANT,
            run_id,
            wait.wait_id,
            event_id=event_id,
            resolution=payload(data),
            resolver=WaitResolver(principal=samples.principal(), scopes=ScopeSet.of()),
        )

    return Mutation(answering({"ok": True}), answering({"ok": False}))


async def _owner(world: DriveWorld) -> HandDriven:
    return await HandDriven.of(world, (await world.claimed(await world.submitted())).fence)


def _committing(plan: CommitPlan) -> Send:
    return lambda store: RunCommitter(store).commit(plan)


async def start(world: DriveWorld) -> Mutation:
    hand, event_id = await _owner(world), EventId.generate()
    plan, other = (hand.start("ask", event_id=event_id) for _ in range(2))
    return Mutation(_committing(plan), _committing(other))


async def completion(world: DriveWorld) -> Mutation:
    hand = await _owner(world)
    await hand.commit(hand.start("ask"))
    return Mutation(_committing(hand.complete("ask")))


async def barrier(world: DriveWorld) -> Mutation:
    hand, event_id = await _owner(world), EventId.generate()
    await hand.commit(hand.start("ask"))
    await hand.commit(hand.complete("ask"))
    drafts = [
        SuperstepDraft(
            state=hand.state,
            graph=hand.graph,
            epoch=hand.fence.epoch,
            barrier=BarrierIds(event_id=event_id, checkpoint_id=CheckpointId.generate()),
            plan=hand.state.barrier(hand.graph),
        )
        for _ in range(2)
    ]
    assert hand.state.head is not None
    head, fence = hand.state.head, hand.fence
    plan, other = (CommitPlan(fence=fence, head=head, build=draft.build, size=0) for draft in drafts)
    return Mutation(_committing(plan), _committing(other))


async def claim(world: DriveWorld) -> Mutation:
    run_id, attempt_id = await world.submitted(), AttemptId.generate()
    return Mutation(lambda store: store.claim(TENANT, run_id, attempt_id), is_said=False, outlives=False)


async def supersession(world: DriveWorld) -> Mutation:
    run_id, attempt_id = await world.submitted(), AttemptId.generate()
    await world.claimed(run_id)
    return Mutation(lambda store: store.supersede(TENANT, run_id, attempt_id), is_said=False, outlives=False)


async def renewal(world: DriveWorld) -> Mutation:
    held = await world.claimed(await world.submitted())
    desired = held.lease.expires_at.plus(LONG)
    return Mutation(lambda store: store.renew(held.fence, desired=desired), is_said=False, outlives=False)


async def release(world: DriveWorld) -> Mutation:
    held = await world.claimed(await world.submitted())
    return Mutation(lambda store: store.release(held.fence, delay=LONG), is_said=False, outlives=False)


async def deferral(world: DriveWorld) -> Mutation:
    hand = await _owner(world)
    assert hand.state.head is not None
    head, gate = hand.state.head, world.store.clock.stamp().plus(LONG)
    return Mutation(lambda store: store.defer(hand.fence, head=head, not_before=gate), is_said=False, outlives=False)


MUTATIONS: Final[Mapping[str, Callable[[DriveWorld], Awaitable[Mutation]]]] = {
    each.__name__: each
    for each in (
        *(submission, admission, attachment, cancellation, resolution),
        *(start, completion, barrier),
        *(claim, supersession, renewal, release, deferral),
    )
}


def _word(answer: Answer) -> str:
    return str(answer.outcome.value)


@pytest.mark.parametrize("name", MUTATIONS)
def test_LED_19_LEA_21_a_mutation_sent_again_leaves_the_rows_of_the_first_time(in_world: InWorld, name: str) -> None:
    async def work(world: DriveWorld) -> None:
        mutation = await MUTATIONS[name](world)
        first = await mutation.send(world.store)
        assert not mutation.is_said or _word(first) == "committed"
        before = await world.everything()
        # The same process, and one that knows of nothing.
        async with AgentRunStore(world.store_url, world.store.options) as elsewhere:
            await elsewhere.ensure_clock()
            for store in (world.store, elsewhere, elsewhere):
                again = await mutation.send(store)
                assert not mutation.is_said or _word(again) == "idempotent"
                assert await world.everything() == before
            if mutation.other is not None:
                for store in (world.store, elsewhere):
                    with pytest.raises(mutation.conflict):
                        await mutation.other(store)
                    assert await world.everything() == before
        if not mutation.outlives:
            return
        # Somebody else has gone on with the run since; what was committed is there all the same.
        await world.expire_leases()
        (row,) = await world.rows("SELECT run_id::text AS run_id, status FROM agentruns.runs")
        if row.status != "waiting":
            await world.driven(RunId(row.run_id))
        before = await world.everything()
        assert _word(await mutation.send(world.store)) == "idempotent"
        assert await world.everything() == before

    in_world(work, graph(), lease=LONG)
