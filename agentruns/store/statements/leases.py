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
    any_,
    bindparam,
    case,
    func,
    literal,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA
from sqlalchemy.sql.elements import ColumnElement

from agentruns.store.sets import POSITION, RUN, ItemSet, materialized
from agentruns.store.statements.guards import CLAIMABLE, ROW, Refusal, fence_refusals, head_refusal, judge, lock_runs
from agentruns.store.tables import runs

FRESH: Final = ItemSet("fresh", {"attempt_id": runs.c.lease_attempt_id.type})
CLAIMS: Final = ItemSet("item", RUN | {"attempt_id": runs.c.lease_attempt_id.type})
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

#: The greatest epoch; a run there is never claimed again.
LAST_EPOCH: Final = 2**63 - 1

available_at: Final = func.greatest(runs.c.scheduler_ready_at, runs.c.scheduler_not_before)

_LEASE: Final = [runs.c.fencing_epoch, runs.c.lease_acquired_at, runs.c.lease_renewed_at, runs.c.lease_expires_at]


def _changed(judged: CTE, values: dict[Any, Any]) -> Select[Any]:
    """Change the rows that were judged *done*, and answer every row that was locked."""
    run = (
        update(runs)
        .values(values)
        .where(runs.c.tenant_id == judged.c.tenant_id, runs.c.run_id == judged.c.run_id, judged.c.answer == "done")
        .returning(judged.c[POSITION], *_LEASE)
        .cte("run")
    )
    lease = [run.c[column.key] for column in _LEASE]
    seen = [judged.c[column.key] for column in ROW]
    return select(judged.c[POSITION], judged.c.answer, judged.c.now, *lease, *seen).select_from(
        judged.outerjoin(run, run.c[POSITION] == judged.c[POSITION])
    )


# --- claim -----------------------------------------------------------------------------------------------------------


def _claim_refusals(item: CTE, now: ColumnElement[Any]) -> list[Refusal]:
    available = func.greatest(item.c.run_ready_at, item.c.run_not_before)
    is_own = and_(item.c.run_attempt_id == item.c.attempt_id, now < item.c.run_expires_at)
    return [
        (and_(is_own, now >= item.c.run_renewed_at), "mine"),
        (or_(now < item.c.run_renewed_at, now < item.c.run_ready_at), "clock"),
        (item.c.run_quarantined_at.is_not(None), "quarantined"),
        (item.c.run_status.not_in(CLAIMABLE), "status"),
        (item.c.run_superstep.is_(None), "no_checkpoint"),
        (available > now, "deferred"),
        (item.c.run_expires_at > now, "leased"),
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
    """Take the lease of named runs that are ready and that nobody holds."""
    judged = judge(lock_runs(CLAIMS, skip_locked=False), _claim_refusals)
    return _changed(judged, _claimed(judged.c.now, judged.c.attempt_id))


@cache
def claim_ready() -> Select[Any]:
    """Take the lease of the oldest ready runs of a tenant, of the graphs given; held rows are passed over."""
    found = _oldest_ready()
    numbered = select(
        found, func.row_number().over(order_by=(found.c.available_at, found.c.run_id)).label(POSITION)
    ).subquery("numbered")
    attempt = FRESH.source()
    taken = (
        select(numbered.c.tenant_id, numbered.c.run_id, numbered.c[POSITION], attempt.c.attempt_id, _clock().c.now)
        .join_from(numbered, attempt, attempt.c[POSITION] == numbered.c[POSITION])
        .join(_clock(), true())
        .subquery("taken")
    )
    claimed = (
        update(runs)
        .values(_claimed(taken.c.now, taken.c.attempt_id))
        .where(runs.c.tenant_id == taken.c.tenant_id, runs.c.run_id == taken.c.run_id)
        .returning(taken.c[POSITION], runs.c.run_id, runs.c.lease_attempt_id, *_LEASE)
        .cte("run")
    )
    clock = _clock()
    answer = select(clock.c.now, claimed).select_from(clock.outerjoin(claimed, true()))
    return answer.order_by(claimed.c[POSITION])


def _oldest_ready() -> CTE:
    now = select(_clock().c.now).scalar_subquery()
    rows = (
        select(runs.c.tenant_id, runs.c.run_id, available_at.label("available_at"))
        .where(
            runs.c.tenant_id == bindparam("of_tenant", type_=Text()),
            runs.c.scheduler_ready_at.is_not(None),
            runs.c.quarantined_at.is_(None),
            available_at <= now,
            runs.c.scheduler_ready_at <= now,
            or_(runs.c.lease_expires_at.is_(None), runs.c.lease_expires_at <= now),
            runs.c.fencing_epoch < LAST_EPOCH,
            runs.c.graph_definition_digest == any_(bindparam("graph_digests", type_=ARRAY(BYTEA()))),
        )
        .order_by(available_at, runs.c.run_id)
        .limit(bindparam("limit", type_=BigInteger()))
        .with_for_update(key_share=True, of=runs, skip_locked=True)
    )
    return materialized(rows, "found")


@cache
def _clock() -> CTE:
    """Read the clock once. As a scalar subquery, so that the ready index is read in order and without a sort."""
    return materialized(select(func.clock_timestamp().label("now")), "clock")


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
