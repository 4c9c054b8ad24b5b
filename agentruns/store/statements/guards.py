"""What every statement of a worker asks of the locked run row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sqlalchemy import CTE, and_, case, select, true
from sqlalchemy.sql.elements import ColumnElement

from agentruns.store.sets import ItemSet, clock_after, materialized
from agentruns.store.tables import runs

#: A condition under which an item changes nothing, and the word for it.
Refusal: TypeAlias = tuple[ColumnElement[bool], str]

#: The refusals of an operation, first reason first, over the locked items and the clock.
Refusals: TypeAlias = Callable[[CTE, ColumnElement[Any]], list[Refusal]]

#: Statuses in which a run may be claimed.
CLAIMABLE: Final = ("active", "cancellation_requested")

#: The columns of the locked row that decisions read, under names that no item has.
ROW: Final = (
    runs.c.status.label("run_status"),
    runs.c.revision.label("run_revision"),
    runs.c.superstep.label("run_superstep"),
    runs.c.fencing_epoch.label("run_epoch"),
    runs.c.lease_attempt_id.label("run_attempt_id"),
    runs.c.lease_acquired_at.label("run_acquired_at"),
    runs.c.lease_renewed_at.label("run_renewed_at"),
    runs.c.lease_expires_at.label("run_expires_at"),
    runs.c.scheduler_ready_at.label("run_ready_at"),
    runs.c.scheduler_not_before.label("run_not_before"),
    runs.c.quarantined_at.label("run_quarantined_at"),
    runs.c.head_sequence.label("run_head_sequence"),
    runs.c.head_digest.label("run_head_digest"),
    runs.c.head_recorded_at.label("run_head_recorded_at"),
)


def lock_runs(items: ItemSet, *, skip_locked: bool) -> CTE:
    """Lock the run row of each item, in key order, and bring item and row together."""
    item = items.source()
    rows = (
        select(item, *ROW)
        .join(runs, and_(runs.c.tenant_id == item.c.tenant_id, runs.c.run_id == item.c.run_id))
        .order_by(runs.c.tenant_id, runs.c.run_id)
        .with_for_update(key_share=True, of=runs, skip_locked=skip_locked)
    )
    return materialized(rows, "locked")


def fence_refusals(item: CTE, now: ColumnElement[Any]) -> list[Refusal]:
    """List why a worker's fence does not permit a write, first reason first. Expiry is exclusive."""
    return [
        (item.c.run_quarantined_at.is_not(None), "quarantined"),
        (item.c.run_epoch != item.c.epoch, "stale_fence"),
        (item.c.run_attempt_id.is_(None), "no_lease"),
        (item.c.run_attempt_id != item.c.attempt_id, "stale_fence"),
        (now < item.c.run_renewed_at, "clock"),
        (now >= item.c.run_expires_at, "expired"),
    ]


def head_refusal(item: CTE) -> Refusal:
    """Refuse a plan that was made at another head: the head is the version of the run."""
    moved = (item.c.run_head_sequence != item.c.expected_sequence) | (item.c.run_head_digest != item.c.expected_digest)
    return moved, "head"


def judge(locked: CTE, refusals: Refusals) -> CTE:
    """Give every locked item its answer: *done*, or the first reason why not, by the clock read after the last lock."""
    clock = clock_after(locked)
    answer = case(*refusals(locked, clock.c.now), else_="done").label("answer")
    rows = select(locked, clock.c.now, answer).select_from(locked.join(clock, true()))
    return materialized(rows, "judged")
