"""Claim, renew, release, defer and observe: who may write for a run, decided by the database's clock after the lock."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    Interval,
    Select,
    Text,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from agentruns.store.sets import POSITION, RUN, ItemSet, materialized
from agentruns.store.statements import tenant_slots
from agentruns.store.statements.guards import CLAIMABLE, ROW, Refusal, fence_refusals, head_refusal, judge, lock_runs
from agentruns.store.statements.history import SHORT_BYTES, SHORT_EVENTS, byte_count, gathered
from agentruns.store.statements.ready import LAST_EPOCH, available_at, is_ready
from agentruns.store.tables import runs

FRESH: Final = ItemSet("fresh", {"attempt_id": runs.c.lease_attempt_id.type})
CLAIMS: Final = ItemSet("item", RUN | {"attempt_id": runs.c.lease_attempt_id.type})
SUPERSESSIONS: Final = ItemSet("item", {**CLAIMS.columns, "expected_epoch": BigInteger()})
FENCES: Final = ItemSet("item", RUN | {"epoch": BigInteger(), "attempt_id": runs.c.lease_attempt_id.type})
RENEWALS: Final = ItemSet("item", {**FENCES.columns, "desired": runs.c.lease_expires_at.type})
RELEASES: Final = ItemSet("item", {**FENCES.columns, "delay": Interval()})
DEFERRALS: Final = ItemSet(
    "item",
    {
        **FENCES.columns,
        "expected_sequence": BigInteger(),
        "expected_digest": runs.c.head_digest.type,
        "not_before": runs.c.scheduler_not_before.type,
    },
)

_LEASE: Final = [runs.c.fencing_epoch, runs.c.lease_acquired_at, runs.c.lease_renewed_at, runs.c.lease_expires_at]


def _run(judged: CTE, values: dict[Any, Any]) -> CTE:
    """Change the rows that were judged *done*."""
    return (
        update(runs)
        .values(values)
        .where(runs.c.tenant_id == judged.c.tenant_id, runs.c.run_id == judged.c.run_id, judged.c.answer == "done")
        .returning(judged.c[POSITION], runs.c.tenant_id, runs.c.run_id, *_LEASE)
        .cte("run")
    )


def _answered(judged: CTE, run: CTE) -> Select[Any]:
    """Answer every row that was locked."""
    lease = [run.c[column.key] for column in _LEASE]
    seen = [judged.c[column.key] for column in ROW]
    return select(judged.c[POSITION], judged.c.answer, judged.c.now, *lease, *seen).select_from(
        judged.outerjoin(run, run.c[POSITION] == judged.c[POSITION])
    )


def _changed(judged: CTE, values: dict[Any, Any]) -> Select[Any]:
    return _answered(judged, _run(judged, values))


# --- claim -----------------------------------------------------------------------------------------------------------


def _claim_refusals(item: CTE, now: ColumnElement[Any]) -> list[Refusal]:
    return _taking_refusals(item, now, (item.c.run_expires_at > now, "leased"))


def _supersession_refusals(item: CTE, now: ColumnElement[Any]) -> list[Refusal]:
    is_other = and_(item.c.expected_epoch.is_not(None), item.c.run_epoch != item.c.expected_epoch)
    return _taking_refusals(item, now, (is_other, "epoch"))


def _taking_refusals(item: CTE, now: ColumnElement[Any], of_its_own: Refusal) -> list[Refusal]:
    """List why a lease cannot be taken, with the one reason in which a claim and a supersession differ."""
    available = func.greatest(item.c.run_ready_at, item.c.run_not_before)
    is_own = and_(item.c.run_attempt_id == item.c.attempt_id, now < item.c.run_expires_at)
    return [
        (and_(is_own, now >= item.c.run_renewed_at), "mine"),
        (or_(now < item.c.run_renewed_at, now < item.c.run_ready_at), "clock"),
        (item.c.run_quarantined_at.is_not(None), "quarantined"),
        (item.c.run_status.not_in(CLAIMABLE), "status"),
        (item.c.run_superstep.is_(None), "no_checkpoint"),
        (available > now, "deferred"),
        of_its_own,
        (item.c.run_epoch >= LAST_EPOCH, "epoch_exhausted"),
    ]


def _claimed(now: ColumnElement[Any], attempt_id: ColumnElement[Any]) -> dict[Any, Any]:
    """Issue the next epoch: each claim raises it by exactly one, and nothing else changes it."""
    return {
        runs.c.fencing_epoch: runs.c.fencing_epoch + 1,
        runs.c.lease_attempt_id: attempt_id,
        runs.c.lease_acquired_at: now,
        runs.c.lease_renewed_at: now,
        runs.c.lease_expires_at: now + bindparam("lease_duration", type_=Interval()),
        runs.c.scheduler_not_before: null(),
    }


@cache
def claim() -> Select[Any]:
    """Take the lease of a named run that is ready and that nobody holds, and a place if its tenant has a limit."""
    able = judge(lock_runs(CLAIMS, skip_locked=False), _claim_refusals)
    is_able = able.c.answer == "done"
    # The run is locked first, and a place only when the run can be had.
    free = tenant_slots.free(needed=exists(select(able.c[POSITION]).where(is_able)))
    answer = case((and_(is_able, tenant_slots.room(free) < 1), "tenant_at_capacity"), else_=able.c.answer)
    others = [column for column in able.c if column.key != "answer"]
    judged = materialized(select(*others, answer.label("answer")), "judged_with_room")
    run = _run(judged, _claimed(judged.c.now, judged.c.attempt_id))
    return _answered(judged, run).add_cte(tenant_slots.take(free, run))


@cache
def supersede() -> Select[Any]:
    """Take the lease of a named run from whoever holds it: the next epoch fences the old owner out at once.

    The tenant's limit does not hold here; a place of the old epoch passes on.
    """
    judged = judge(lock_runs(SUPERSESSIONS, skip_locked=False), _supersession_refusals)
    run = _run(judged, _claimed(judged.c.now, judged.c.attempt_id))
    return _answered(judged, run).add_cte(tenant_slots.pass_on(run))


@cache
def claim_ready() -> Select[Any]:
    """Take the lease of the oldest ready runs of a tenant, of the graphs given; held rows are passed over.

    No more are taken than the tenant has room for. The histories of short runs come with it, as many as the bounds of
    one reading permit: those of the statement's snapshot, which may end below the head of a row that was locked later.
    """
    free = tenant_slots.free(needed=true())
    clock = materialized(select(func.clock_timestamp().label("now"), tenant_slots.room(free).label("room")), "clock")
    claimed = _claimed_oldest(clock)
    measured = _measured(claimed)
    fits = and_(measured.c.events_so_far <= SHORT_EVENTS, measured.c.bytes_so_far <= SHORT_BYTES)
    history = gathered(measured, fits)
    answer = select(clock.c.now, clock.c.room, measured, *history.c).select_from(
        clock.outerjoin(measured, true()).outerjoin(history, true())
    )
    return answer.order_by(measured.c[POSITION]).add_cte(tenant_slots.take(free, claimed))


def _claimed_oldest(clock: CTE) -> CTE:
    found = _oldest_ready(clock)
    numbered = select(
        found, func.row_number().over(order_by=(found.c.available_at, found.c.run_id)).label(POSITION)
    ).subquery("numbered")
    attempt = FRESH.source()
    taken = (
        select(numbered.c.tenant_id, numbered.c.run_id, numbered.c[POSITION], attempt.c.attempt_id, clock.c.now)
        .join_from(numbered, attempt, attempt.c[POSITION] == numbered.c[POSITION])
        .join(clock, true())
        .subquery("taken")
    )
    return (
        update(runs)
        .values(_claimed(taken.c.now, taken.c.attempt_id))
        .where(runs.c.tenant_id == taken.c.tenant_id, runs.c.run_id == taken.c.run_id)
        .returning(taken.c[POSITION], *runs.c)
        .cte("run")
    )


def _measured(claimed: CTE) -> CTE:
    """Add up what the claimed runs would bring, in their order; the head's sequence is the number of events."""
    weighed = materialized(
        select(claimed, claimed.c.head_sequence.label("event_count"), byte_count(claimed).label("byte_count")),
        "weighed",
    )
    return materialized(
        select(
            weighed,
            func.sum(weighed.c.event_count).over(order_by=weighed.c[POSITION]).label("events_so_far"),
            func.sum(weighed.c.byte_count).over(order_by=weighed.c[POSITION]).label("bytes_so_far"),
        ),
        "measured",
    )


def _oldest_ready(clock: CTE) -> CTE:
    now = select(clock.c.now).scalar_subquery()
    rows = (
        select(runs.c.tenant_id, runs.c.run_id, available_at.label("available_at"))
        .where(is_ready(bindparam("of_tenant", type_=Text()), now))
        .order_by(available_at, runs.c.run_id)
        .limit(select(clock.c.room).scalar_subquery())
        .with_for_update(key_share=True, of=runs, skip_locked=True)
    )
    return materialized(rows, "found")


# --- after the claim -------------------------------------------------------------------------------------------------

_RELEASED: Final = {
    runs.c.lease_attempt_id: null(),
    runs.c.lease_acquired_at: null(),
    runs.c.lease_renewed_at: null(),
    runs.c.lease_expires_at: null(),
}


@cache
def renew(*, skip_locked: bool) -> Select[Any]:
    """Extend leases that live; never shorten one."""

    def refusals(item: CTE, now: ColumnElement[Any]) -> list[Refusal]:
        horizon = now + bindparam("horizon", type_=Interval())
        *fence, clock, expired = fence_refusals(item, now)
        return [
            *fence,
            (item.c.desired == item.c.run_expires_at, "same"),
            clock,
            expired,
            (item.c.desired < item.c.run_expires_at, "lease_not_extended"),
            (item.c.desired > horizon, "lease_horizon"),
        ]

    judged = judge(lock_runs(RENEWALS, skip_locked=skip_locked), refusals)
    return _changed(judged, {runs.c.lease_renewed_at: judged.c.now, runs.c.lease_expires_at: judged.c.desired})


@cache
def release(*, skip_locked: bool) -> Select[Any]:
    """Give leases back. There is no test of expiry: an owner that nobody has superseded may always let go."""

    def refusals(item: CTE, now: ColumnElement[Any]) -> list[Refusal]:
        return [
            (item.c.run_epoch != item.c.epoch, "stale_fence"),
            (item.c.run_attempt_id.is_(None), "no_lease"),
            (item.c.run_attempt_id != item.c.attempt_id, "stale_fence"),
            (now < item.c.run_renewed_at, "clock"),
        ]

    judged = judge(lock_runs(RELEASES, skip_locked=skip_locked), refusals)
    is_claimable = runs.c.status.in_(CLAIMABLE)
    return _changed(
        judged,
        {
            **_RELEASED,
            runs.c.scheduler_ready_at: case((is_claimable, judged.c.now), else_=runs.c.scheduler_ready_at),
            runs.c.scheduler_not_before: case((is_claimable, judged.c.now + judged.c.delay), else_=null()),
        },
    )


@cache
def defer(*, skip_locked: bool) -> Select[Any]:
    """Set the gate of runs and give their leases back in the same statement, unless the time has come."""

    def refusals(item: CTE, now: ColumnElement[Any]) -> list[Refusal]:
        return [
            *fence_refusals(item, now),
            head_refusal(item),
            (now < item.c.run_ready_at, "clock"),
            (item.c.not_before <= now, "due"),
        ]

    judged = judge(lock_runs(DEFERRALS, skip_locked=skip_locked), refusals)
    return _changed(judged, {**_RELEASED, runs.c.scheduler_not_before: judged.c.not_before})


@cache
def observe() -> Select[Any]:
    """Read the rows of runs beside the clock."""
    item = FENCES.source()
    return select(
        item.c[POSITION], literal("seen").label("answer"), func.clock_timestamp().label("now"), *ROW
    ).join_from(item, runs, and_(runs.c.tenant_id == item.c.tenant_id, runs.c.run_id == item.c.run_id))
