"""Somebody answers what a run waits for: the first answer stands, and the run goes on with exactly that."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.ids import EventId, RunId, WaitId
from agentruns.domain.ledger.records import WaitSettlement
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.waits import InterruptRegistration, NodeWait, TimerRegistration, WaitResolver
from agentruns.errors import (
    CorruptDataError,
    IdConflictError,
    NotFoundError,
    ResolverNotPermittedError,
    RunNotFoundError,
    SchemaUnavailableError,
    WaitAlreadySettledError,
)
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.settled_waits import SettledRunWait
from agentruns.testing import samples
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld
from agentruns.testing.movable_clock import MovableClock

InWorld = Callable[..., None]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
WAITING, ACTIVE = RunStatus.WAITING, RunStatus.ACTIVE
LONG = timedelta(minutes=1)


def test_LIF_10_LIF_11_the_last_settled_wait_makes_the_run_go_on_with_the_answers(
    in_world: InWorld, sleeper: Any, payload: Any
) -> None:
    ids = [WaitId.generate(), WaitId.generate()]
    asked = list(zip(("approval", "input"), ids, strict=True))
    sleeping = sleeper(
        lambda: tuple(NodeWait.interrupt(kind, request=payload(kind), id=wait_id) for kind, wait_id in asked)
    )

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        registered = await service.outstanding(TENANT, run_id)
        assert [(each.wait_id, each.kind.value) for each in registered] == [(ids[0], "approval"), (ids[1], "input")]
        assert all(isinstance(each, InterruptRegistration) for each in registered)
        assert [each.request.data.value for each in registered] == ["approval", "input"]

        # In the other order than they were asked for.
        second = sleeping.answering(run_id, ids[1], resolution=payload({"n": 2}))
        answered = await service.resolve_interrupt(**second)
        assert (answered.outcome, answered.snapshot.status) == (COMMITTED, WAITING)
        assert (await world.rows("SELECT scheduler_ready_at FROM agentruns.runs"))[0][0] is None
        assert [each.wait_id for each in await service.outstanding(TENANT, run_id)] == [ids[0]]
        first = sleeping.answering(run_id, ids[0], resolution=payload({"n": 1}))
        answered = await service.resolve_interrupt(**first)
        assert (answered.outcome, answered.snapshot.status) == (COMMITTED, ACTIVE)
        assert answered.snapshot == await world.loaded(run_id)
        (row,) = await world.rows("SELECT scheduler_ready_at, changed_at FROM agentruns.runs")
        assert row.scheduler_ready_at == row.changed_at
        assert await service.outstanding(TENANT, run_id) == ()

        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        (read,) = sleeping.read
        assert [(each.wait_id, each.how) for each in read] == [(wait_id, WaitSettlement.RESOLVED) for wait_id in ids]
        assert [each.resolution.payload.data.value for each in read] == [{"n": 1}, {"n": 2}]
        # The waiting node was executed exactly once.
        assert await world.attempts() == [("ask", 1, 1), ("go_on", 1, 2)]

        # A retry long afterwards finds what it did, whatever has happened to the run since.
        again = await service.resolve_interrupt(**second)
        assert (again.outcome, again.snapshot) == (IDEMPOTENT, await world.loaded(run_id))
        with pytest.raises(IdConflictError) as conflict:
            await service.resolve_interrupt(**second | {"resolution": payload({"n": 3})})
        assert (conflict.value.kind, conflict.value.id) == ("event", second["event_id"])
        settled = await service.settled(TENANT, run_id, ids[1])
        assert settled == read[1]

    in_world(work, sleeping.graph(), lease=LONG)


def test_an_event_id_that_the_run_has_already_is_a_conflict(in_world: InWorld, sleeper: Any, payload: Any) -> None:
    sleeping = sleeper(lambda: tuple(NodeWait.interrupt("approval", request=payload(number)) for number in range(2)))

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        first, second = await service.outstanding(TENANT, run_id)
        (admitted,) = await world.rows("SELECT event_id::text AS id FROM agentruns.run_events WHERE sequence = 1")
        request = sleeping.answering(run_id, first.wait_id)
        with pytest.raises(IdConflictError):
            await service.resolve_interrupt(**request | {"event_id": EventId(admitted.id)})
        assert (await service.resolve_interrupt(**request)).outcome is COMMITTED
        with pytest.raises(IdConflictError) as conflict:
            await service.resolve_interrupt(**request | {"wait_id": second.wait_id})
        assert (conflict.value.kind, conflict.value.id) == ("event", request["event_id"])

    in_world(work, sleeping.graph(), lease=LONG)


def one_interrupt(payload: Any, **changes: Any) -> Callable[[], tuple[Any, ...]]:
    return lambda: (NodeWait.interrupt("approval", request=payload("may I?"), **changes),)


def test_LIF_08_of_many_answers_exactly_one_settles_the_wait(in_world: InWorld, sleeper: Any, payload: Any) -> None:
    sleeping = sleeper(one_interrupt(payload))

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        (wait,) = await service.outstanding(TENANT, run_id)
        answers = await asyncio.gather(
            *(
                service.resolve_interrupt(**sleeping.answering(run_id, wait.wait_id, resolution=payload({"n": n})))
                for n in range(16)
            ),
            return_exceptions=True,
        )
        found = Counter(
            (type(each), each.reason) if isinstance(each, WaitAlreadySettledError) else each.outcome
            for each in answers
            if not isinstance(each, BaseException) or isinstance(each, WaitAlreadySettledError)
        )
        assert found == {COMMITTED: 1, (WaitAlreadySettledError, "resolved"): 15}
        assert (await world.kinds()).count("graph-interrupt-resolved") == 1

    in_world(work, sleeping.graph(), lease=LONG)


def test_LIF_09_equality_is_expired_and_one_microsecond_before_is_in_time(
    in_world: InWorld, sleeper: Any, payload: Any, clock: MovableClock
) -> None:
    sleeping = sleeper(one_interrupt(payload, expires_in=timedelta(minutes=5)))

    async def work(world: DriveWorld) -> None:
        sleeping.stands_still(world)
        await clock.advance(timedelta(0))
        service = sleeping.service(world)
        for early, expected in ((timedelta(microseconds=1), COMMITTED), (timedelta(0), "expired")):
            run_id = await sleeping.asleep(world)
            (wait,) = await service.outstanding(TENANT, run_id)
            await clock.set(wait.expires_at.to_datetime() - early)
            request = sleeping.answering(run_id, wait.wait_id)
            if expected is COMMITTED:
                assert (await service.resolve_interrupt(**request)).outcome is COMMITTED
            else:
                with pytest.raises(WaitAlreadySettledError) as late:
                    await service.resolve_interrupt(**request)
                assert late.value.reason == expected
                assert [each.wait_id for each in await service.outstanding(TENANT, run_id)] == [wait.wait_id]

    in_world(work, sleeping.graph(), lease=LONG)


def test_who_may_answer_is_for_the_wait_to_say(in_world: InWorld, sleeper: Any, payload: Any) -> None:
    boss = samples.principal("boss")
    sleeping = sleeper(one_interrupt(payload, principal=boss, scopes=("pay", "sign")))

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        (wait,) = await service.outstanding(TENANT, run_id)
        before = await world.everything()
        for principal, scopes in ((samples.principal(), ("pay", "sign")), (boss, ("pay",))):
            resolver = WaitResolver(principal=principal, scopes=ScopeSet.of(*scopes))
            with pytest.raises(ResolverNotPermittedError) as refused:
                await service.resolve_interrupt(**sleeping.answering(run_id, wait.wait_id, resolver=resolver))
            assert refused.value.wait_id == wait.wait_id
        assert await world.everything() == before
        resolver = WaitResolver(principal=boss, scopes=ScopeSet.of("more", "pay", "sign"))
        answered = await service.resolve_interrupt(**sleeping.answering(run_id, wait.wait_id, resolver=resolver))
        assert answered.outcome is COMMITTED

    in_world(work, sleeping.graph(), lease=LONG)


def test_each_refusal_has_its_name(in_world: InWorld, sleeper: Any, payload: Any) -> None:
    sleeping = sleeper(
        lambda: (
            NodeWait.interrupt("approval", request=payload("may I?")),
            NodeWait.timer(due_in=timedelta(hours=1)),
        )
    )

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        interrupt, timer = await service.outstanding(TENANT, run_id)
        assert isinstance(timer, TimerRegistration)
        request = sleeping.answering(run_id, interrupt.wait_id)
        with pytest.raises(RunNotFoundError):
            await service.resolve_interrupt(**request | {"run_id": RunId.generate()})
        for wait_id in (WaitId.generate(), timer.wait_id):
            with pytest.raises(NotFoundError) as unknown:
                await service.resolve_interrupt(**request | {"wait_id": wait_id})
            assert (unknown.value.kind, unknown.value.id) == ("wait", wait_id)
        with pytest.raises(SchemaUnavailableError):
            await service.resolve_interrupt(**request | {"resolution": payload("x", name="unknown")})
        for name in ("tenant_id", "run_id", "wait_id", "event_id", "resolution", "resolver"):
            with pytest.raises(TypeError, match=f"pass {name} as .*, not str"):
                await service.resolve_interrupt(**request | {name: "x"})
        assert await service.settled(TENANT, run_id, timer.wait_id) is None
        await request_cancellation(world, run_id)
        with pytest.raises(WaitAlreadySettledError) as over:
            await service.resolve_interrupt(**request)
        assert over.value.reason == "abandoned"
        assert await service.settled(TENANT, run_id, timer.wait_id) == SettledRunWait(
            wait_id=timer.wait_id, how=WaitSettlement.ABANDONED, resolution=None
        )

    in_world(work, sleeping.graph(), lease=LONG)


def test_LIF_18_joined_it_happens_with_the_callers_commit_or_not_at_all(
    in_world: InWorld, sleeper: Any, payload: Any
) -> None:
    sleeping = sleeper(one_interrupt(payload))

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        (wait,) = await service.outstanding(TENANT, run_id)
        request, before = sleeping.answering(run_id, wait.wait_id), await world.everything()
        engine = create_async_engine(world.store_url, poolclass=NullPool)
        async with engine.connect() as connection:
            assert (await service.resolve_interrupt(**request, session=connection)).outcome is COMMITTED
            assert await service.outstanding(TENANT, run_id, session=connection) == ()
            await connection.rollback()
        assert await world.everything() == before
        async with engine.connect() as connection:
            with pytest.raises(NotFoundError):
                await service.resolve_interrupt(**request | {"wait_id": WaitId.generate()}, session=connection)
            assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
            assert (await service.resolve_interrupt(**request, session=connection)).outcome is COMMITTED
            other = request | {"event_id": EventId.generate()}
            with pytest.raises(WaitAlreadySettledError):
                await service.resolve_interrupt(**other, session=connection)
            await connection.commit()
        await engine.dispose()
        assert (await world.loaded(run_id)).status is ACTIVE

    in_world(work, sleeping.graph(), lease=LONG)


@pytest.mark.parametrize(
    ("change", "component"),
    [
        ("registration = registration || ' '::bytea", "run_waits.registration"),
        ("digest = sha256(digest)", "run_waits.digest"),
        ("status = 'abandoned', settled_sequence = sequence + 1", "waits"),
    ],
)
def test_a_damaged_wait_is_never_settled(
    in_world: InWorld, sleeper: Any, payload: Any, change: str, component: str
) -> None:
    sleeping = sleeper(one_interrupt(payload))

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        (wait,) = await service.outstanding(TENANT, run_id)
        await world.rows(f"UPDATE agentruns.run_waits SET {change}")  # noqa: S608  # our own text
        with pytest.raises(CorruptDataError) as corrupt:
            await service.resolve_interrupt(**sleeping.answering(run_id, wait.wait_id))
        assert corrupt.value.component == component

    in_world(work, sleeping.graph(), lease=LONG)


@pytest.mark.parametrize(
    ("change", "component"),
    [
        ("resolution = resolution || ' '::bytea", "run_waits.resolution"),
        ("resolution_digest = sha256(digest)", "run_waits.resolution_digest"),
        ("settled_sequence = settled_sequence - 1", "run_waits.status"),
    ],
)
def test_a_damaged_answer_is_never_shown(
    in_world: InWorld, sleeper: Any, payload: Any, change: str, component: str
) -> None:
    sleeping = sleeper(one_interrupt(payload))

    async def work(world: DriveWorld) -> None:
        run_id, service = await sleeping.asleep(world), sleeping.service(world)
        (wait,) = await service.outstanding(TENANT, run_id)
        await service.resolve_interrupt(**sleeping.answering(run_id, wait.wait_id))
        await world.rows("ALTER TABLE agentruns.run_waits DROP CONSTRAINT ck_run_waits_settled_sequence")
        await world.rows(f"UPDATE agentruns.run_waits SET {change}")  # noqa: S608  # our own text
        with pytest.raises(CorruptDataError) as corrupt:
            await service.settled(TENANT, run_id, wait.wait_id)
        assert corrupt.value.component == component

    in_world(work, sleeping.graph(), lease=LONG)
