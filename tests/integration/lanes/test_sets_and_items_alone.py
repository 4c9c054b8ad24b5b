"""A set of items leaves the rows that the same items leave one by one, in whatever order and however they are cut."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import pytest
from attrs import frozen
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import AttemptId, EventId, RunId
from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.outcomes import CancellationRequest
from agentruns.domain.ledger.requests import CancellationRequestDraft, FiringDraft, ResolutionDraft
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.waits import NodeWait, WaitClass, WaitResolution, WaitResolver
from agentruns.orm import Base
from agentruns.runtime.committer import CommitPlan
from agentruns.runtime.driver.driver import DurableGraphDriver, GraphDriveResult
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.runtime.driver.outcomes import Blocked, CancellationRequested, LifecycleBarrierReady
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.lease_keeper import LeaseKeeper
from agentruns.runtime.lifecycle import DurableGraphLifecycle
from agentruns.runtime.preparation import prepare
from agentruns.store.admissions import NewAdmission
from agentruns.store.commits import RunCommit
from agentruns.store.control_commits import ControlCommit
from agentruns.store.leases import Deferral, Release, Renewal
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.testing import samples
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, builder
from agentruns.testing.hand_driven import HandDriven
from agentruns.testing.movable_clock import MovableClock

InWorld = Callable[..., None]

LONG: Final = timedelta(minutes=1)
#: Long enough that a stranger's question and a timer are still open.
HOUR: Final = timedelta(hours=1)
ITEMS: Final = 6
#: The item that is refused: its run is isolated, or there already.
REFUSED: Final = 2
OPTIONS: Final = DurableGraphDriverOptions(lease_renewal_interval=LONG / 4)


@frozen
class Kind:
    """Items of one kind, each about a run of its own, and how a set of them is sent.

    Attributes:
        send: gives an answer for each item, in their order.
        refusal: what the one item is answered.
    """

    items: Sequence[Any]
    send: Callable[[UnitOfWork, Sequence[Any]], Sequence[Any]]
    refusal: Any = "quarantined"


def payload(data: Any) -> JournalPayload:
    schema, kind = samples.schema_reference("evidence"), JournalEventKind("answer")
    return JournalPayload(schema=schema, kind=kind, data=BoundedJson.of(data))


def graph_of(kind: str) -> GraphBundle:
    """Make the first node end as the kind needs it."""
    built = builder()

    def a(_context: Any) -> Any:
        if kind == "failure":
            raise ValueError
        waits = (NodeWait.interrupt("approval", request=payload("may I?")), NodeWait.timer(due_in=HOUR))
        return Suspend(*waits) if kind in ("wait", "request", "resolution", "firing") else Finish({})

    built.node(name="a", entry=True, then="b", wait_to="b", terminal=True)(a)
    built.node(name="b", terminal=True)(lambda _context: Finish({}))
    return built.build()


# --- items -----------------------------------------------------------------------------------------------------------


async def _hands(world: DriveWorld) -> list[HandDriven]:
    held = [await world.claimed(await world.submitted()) for _ in range(ITEMS)]
    return [await HandDriven.of(world, each.fence) for each in held]


def _commits(world: DriveWorld, plans: Sequence[Any]) -> Kind:
    stamp, lease = world.store.clock.stamp(), world.store.options.lease_duration
    items = [RunCommit(fence=plan.fence, draft=plan.build(stamp)) for plan in plans]
    return Kind(items, lambda work, some: work.runs.commit(some, lease_duration=lease, skip_locked=True))


async def start(world: DriveWorld) -> Kind:
    return _commits(world, [hand.start() for hand in await _hands(world)])


async def completion(world: DriveWorld) -> Kind:
    hands = await _hands(world)
    for hand in hands:
        await hand.commit(hand.start())
    return _commits(world, [hand.complete() for hand in hands])


async def end(world: DriveWorld) -> Kind:
    """Take what drives hand on: a wait, a success, a failure or a cancellation, as the graph has it."""
    driver = DurableGraphDriver(world.store, world.executables, OPTIONS)
    lifecycle = DurableGraphLifecycle(world.store, world.executables)
    plans = []
    for number in range(ITEMS):
        run_id = await world.submitted()
        if number == ITEMS - 1:
            await request_cancellation(world, run_id)
        held = await world.claimed(run_id)
        async with LeaseKeeper(world.store, held, interval=OPTIONS.lease_renewal_interval) as keeper:
            driven = await driver.drive(keeper, world.shutdown)
        plans.append(_planned(lifecycle, held.fence, driven))
    return _commits(world, plans)


def _planned(lifecycle: DurableGraphLifecycle, fence: RunFence, driven: GraphDriveResult) -> CommitPlan:
    handoff = driven.outcome
    if isinstance(handoff, CancellationRequested):
        return lifecycle._cancellation(fence, handoff)
    if isinstance(handoff, Blocked):
        return lifecycle._failure(fence, handoff)
    assert isinstance(handoff, LifecycleBarrierReady)
    if handoff.plan.output is None:
        return lifecycle._wait(fence, handoff)
    return lifecycle._success(fence, handoff, driven.intent)


async def _control(world: DriveWorld, draft_of: Callable[[RunState], Any], *, later: timedelta = timedelta(0)) -> Kind:
    drafts = []
    for _ in range(ITEMS):
        run_id = await world.submitted()
        await world.driven(run_id)
        hand = await HandDriven.of(world, _fence_of_nobody(run_id))
        drafts.append(draft_of(hand.state))
    stamp = world.store.clock.stamp().plus(later)
    items = [ControlCommit(draft=draft.build(stamp)) for draft in drafts]
    return Kind(items, lambda work, some: work.control.add(some, skip_locked=True))


def _fence_of_nobody(run_id: RunId) -> Any:
    """Name a run where a fence is asked for and none is used."""
    return RunFence(tenant_id=TENANT, run_id=run_id, attempt_id=AttemptId.generate(), epoch=FencingEpoch(1))


async def request(world: DriveWorld) -> Kind:
    asked = CancellationRequest(failure=samples.cancellation())
    return await _control(
        world, lambda state: CancellationRequestDraft(state=state, event_id=EventId.generate(), request=asked)
    )


async def resolution(world: DriveWorld) -> Kind:
    answer = WaitResolution(
        resolver=WaitResolver(principal=samples.principal(), scopes=ScopeSet.of()), payload=payload("yes")
    )

    def draft(state: RunState) -> Any:
        (wait,) = [each for each in state.waits if each.wait_class is WaitClass.INTERRUPT]
        return ResolutionDraft(state=state, event_id=EventId.generate(), wait_id=wait.wait_id, resolution=answer)

    return await _control(world, draft)


async def firing(world: DriveWorld) -> Kind:
    def draft(state: RunState) -> Any:
        (wait,) = [each for each in state.waits if each.wait_class is WaitClass.TIMER]
        return FiringDraft(state=state, event_id=EventId.generate(), wait_id=wait.wait_id)

    return await _control(world, draft, later=HOUR)


async def renewal(world: DriveWorld) -> Kind:
    held = [await world.claimed(await world.submitted()) for _ in range(ITEMS)]
    items = [Renewal(fence=each.fence, desired=each.lease.expires_at.plus(LONG)) for each in held]
    return Kind(items, lambda work, some: work.leases.renew(some, horizon=HOUR, skip_locked=True))


async def release(world: DriveWorld) -> Kind:
    held = [await world.claimed(await world.submitted()) for _ in range(ITEMS)]
    delays = (None, timedelta(seconds=5), LONG)
    items = [Release(fence=each.fence, delay=delays[place % 3]) for place, each in enumerate(held)]
    # An isolated run has no lease: its owner's release is answered with that.
    return Kind(items, lambda work, some: work.leases.release(some, skip_locked=True), refusal="no_lease")


async def deferral(world: DriveWorld) -> Kind:
    hands = await _hands(world)
    gate = world.store.clock.stamp().plus(LONG)
    items = [Deferral(fence=each.fence, head=_head(each), not_before=gate) for each in hands]
    return Kind(items, lambda work, some: work.leases.defer(some, skip_locked=True))


def _head(hand: HandDriven) -> Any:
    return hand.state.head


async def submission(world: DriveWorld) -> Kind:
    requests = [world.request({"number": number}) for number in range(ITEMS)]
    await world.runs.admit(requests[REFUSED])
    stamp = world.store.clock.stamp()
    items = [prepare(each, world.executables, key=None).build(stamp) for each in requests]
    return Kind(items, lambda work, some: work.admissions.add(some).admitted, refusal=False)


KINDS: Final[Mapping[str, Callable[[DriveWorld], Awaitable[Kind]]]] = {
    "submission": submission,
    "start": start,
    "completion": completion,
    "wait": end,
    "success": end,
    "failure": end,
    "request": request,
    "resolution": resolution,
    "firing": firing,
    "renewal": renewal,
    "release": release,
    "deferral": deferral,
}

# --- sending ---------------------------------------------------------------------------------------------------------


def _everything(connection: Connection) -> list[tuple[str, str]]:
    each = "SELECT '{0}' AS name, t::text AS row FROM agentruns.{0} AS t"
    selects = [each.format(table.name) for table in Base.metadata.sorted_tables]
    return [tuple(row) for row in connection.execute(text(" UNION ALL ".join(selects) + " ORDER BY 1, 2"))]


def _cuts(chance: random.Random) -> Iterator[list[list[int]]]:
    """Cut the items into sets: all together, each alone in two orders, and by chance."""
    places = list(range(ITEMS))
    yield [places]
    yield [[place] for place in places]
    yield [[place] for place in reversed(places)]
    for _ in range(3):
        chance.shuffle(places)
        cut = sorted(chance.sample(range(1, ITEMS), 2))
        yield [places[: cut[0]], places[cut[0] : cut[1]], places[cut[1] :]]


def _sent(connection: Connection, kind: Kind, sets: Sequence[Sequence[int]]) -> tuple[list[Any], list[Any]]:
    """Send sets one after another, and give every item's answer and every row that they left."""
    work = UnitOfWork(connection)
    answers: dict[int, Any] = {}
    for places in sets:
        found = kind.send(work, [kind.items[place] for place in places])
        answers.update(zip(places, found, strict=True))
    return [_word(answers[place]) for place in range(ITEMS)], _everything(connection)


def _word(answer: Any) -> Any:
    return getattr(answer, "word", answer)


@pytest.mark.parametrize("name", KINDS)
def test_N6_DB_10_LEA_23_LIF_20_a_set_leaves_what_its_items_leave_one_by_one(
    in_world: InWorld, clock: MovableClock, name: str
) -> None:
    async def work(world: DriveWorld) -> None:
        world.store.clock.monotonic = lambda: 0.0
        await clock.advance(timedelta(0))
        kind = await KINDS[name](world)
        if name != "submission":
            await _isolate(world, _run_of(kind.items[REFUSED]))
        if name == "firing":
            await clock.advance(HOUR)
        found = []
        engine = create_async_engine(world.store_url, poolclass=NullPool)
        async with engine.connect() as connection:
            before = await connection.run_sync(_everything)
            await connection.rollback()
            for sets in _cuts(random.Random(name)):
                found.append(await connection.run_sync(_sent, kind, sets))
                await connection.rollback()
        await engine.dispose()
        answers, rows = found[0]
        done = [place for place, answer in enumerate(answers) if answer in ("done", True)]
        assert done == [place for place in range(ITEMS) if place != REFUSED]
        assert answers[REFUSED] == kind.refusal
        assert len([row for row in rows if row not in before]) >= ITEMS - 1
        refused = _run_of(kind.items[REFUSED]).text
        assert [row for _, row in rows if refused in row] == [row for _, row in before if refused in row] != []
        # The clock stands still, so that even instants are equal.
        assert all(other == (answers, rows) for other in found)

    in_world(work, graph_of(name), lease=LONG)


def _run_of(item: Any) -> RunId:
    if isinstance(item, NewAdmission):
        return item.commit.state.run_id
    return item.draft.state.run_id if isinstance(item, ControlCommit) else item.fence.run_id


async def _isolate(world: DriveWorld, run_id: RunId) -> None:
    await world.rows(
        "UPDATE agentruns.runs SET quarantined_at = changed_at, lease_attempt_id = NULL, lease_acquired_at = NULL,"
        " lease_renewed_at = NULL, lease_expires_at = NULL WHERE run_id = :run_id",
        run_id=run_id.text,
    )
