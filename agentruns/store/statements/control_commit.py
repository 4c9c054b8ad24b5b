"""Commit what the control plane decides: a request to end a run, the settlement of a wait, an expiry; one event each.

The statement is uniform over its kinds, so everything that waits merges. Being at the exact head decides all but the
clock and the quarantine. No fence is asked for: a live lease stays with its holder while the run may still be claimed.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    DateTime,
    Interval,
    Select,
    bindparam,
    case,
    cast,
    insert,
    literal,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.sql.elements import ColumnElement

from agentruns.store.sets import CHILD, POSITION, RUN, ItemSet, columns_of
from agentruns.store.statements.guards import CLAIMABLE, Refusal, head_refusal, judge, lock_runs
from agentruns.store.tables import events, outcomes, runs, waits

ITEMS: Final = ItemSet(
    "item",
    RUN
    | {
        "expected_sequence": BigInteger(),
        "expected_digest": BYTEA(),
        "recorded_at": DateTime(timezone=True),
        "until": DateTime(timezone=True),
    }
    | columns_of(runs.c.status, runs.c.revision)
    | columns_of(
        events.c.sequence, events.c.event_id, events.c.kind, events.c.schema_digest, events.c.data, events.c.digest
    )
    | {"outcome_kind": outcomes.c.kind.type, "outcome_body": BYTEA(), "outcome_digest": BYTEA()},
)
SETTLEMENTS: Final = ItemSet(
    "settlement",
    CHILD
    | columns_of(
        waits.c.wait_id, waits.c.status, waits.c.settled_sequence, waits.c.resolution, waits.c.resolution_digest
    ),
)


HELD: Final = ItemSet("held", RUN)


@cache
def hold(*, skip_locked: bool) -> Select[Any]:
    """Lock the rows of runs, in key order, and say whose are locked."""
    return select(lock_runs(HELD, skip_locked=skip_locked).c[POSITION])


@cache
def control_commit(*, skip_locked: bool) -> Select[Any]:
    """Build the statement; with ``skip_locked`` it waits for nobody and leaves out the items whose row is held."""
    judged = judge(lock_runs(ITEMS, skip_locked=skip_locked), _refusals)
    run = _advance(judged)
    statement = select(judged.c[POSITION], judged.c.answer, judged.c.now)
    return statement.add_cte(_insert_event(run, judged), _insert_outcome(run, judged), _settle_waits(run))


def _refusals(locked: CTE, now: ColumnElement[Any]) -> list[Refusal]:
    stamp = locked.c.recorded_at
    oldest = now - bindparam("stamp_age", type_=Interval())
    return [
        (locked.c.run_quarantined_at.is_not(None), "quarantined"),
        head_refusal(locked),
        (now < locked.c.run_head_recorded_at, "clock"),
        # Equality is expired: what is resolved in time was so by the clock read after the lock.
        (now >= locked.c.until, "expired"),
        (or_(stamp < locked.c.run_head_recorded_at, stamp > now, stamp < oldest), "stamp"),
    ]


def _advance(judged: CTE) -> CTE:
    """Move the run row: one that may be claimed is due at once, and no gate keeps it; any other is not due."""
    is_claimable = judged.c.status.in_(CLAIMABLE)
    lease = (
        runs.c.lease_attempt_id,
        runs.c.lease_acquired_at,
        runs.c.lease_renewed_at,
        runs.c.lease_expires_at,
    )
    return (
        update(runs)
        .values(
            {
                runs.c.head_sequence: judged.c.sequence,
                runs.c.head_digest: judged.c.digest,
                runs.c.head_recorded_at: judged.c.recorded_at,
                runs.c.status: judged.c.status,
                runs.c.revision: judged.c.revision,
                runs.c.changed_at: judged.c.recorded_at,
                runs.c.lifecycle_sequence: judged.c.sequence,
                runs.c.scheduler_ready_at: case((is_claimable, judged.c.recorded_at), else_=None),
                runs.c.scheduler_not_before: null(),
                **{column: case((is_claimable, column), else_=None) for column in lease},
            }
        )
        .where(runs.c.tenant_id == judged.c.tenant_id, runs.c.run_id == judged.c.run_id, judged.c.answer == "done")
        .returning(judged.c[POSITION], runs.c.tenant_id, runs.c.run_id)
        .cte("run")
    )


def _insert_event(run: CTE, judged: CTE) -> CTE:
    columns = ["sequence", "event_id", "recorded_at", "kind", "schema_digest", "data", "digest"]
    rows = _of_moved(run, judged, *(judged.c[name] for name in columns), cast(literal(0), BigInteger))
    return insert(events).from_select([*RUN, *columns, "epoch"], rows).cte("insert_event")


def _insert_outcome(run: CTE, judged: CTE) -> CTE:
    """Write why the end was asked for, or how the run ended."""
    outcome = (judged.c.outcome_kind, judged.c.outcome_body, judged.c.outcome_digest, judged.c.sequence)
    rows = _of_moved(run, judged, *outcome).where(judged.c.outcome_kind.is_not(None))
    columns = [*RUN, "kind", "body", "digest", "sequence"]
    return insert(outcomes).from_select(columns, rows).cte("insert_outcome")


def _of_moved(run: CTE, judged: CTE, *columns: ColumnElement[Any]) -> Select[Any]:
    return (
        select(run.c.tenant_id, run.c.run_id, *columns)
        .join_from(run, judged, judged.c[POSITION] == run.c[POSITION])
        .order_by(run.c.tenant_id, run.c.run_id)
    )


def _settle_waits(run: CTE) -> CTE:
    """Move what the event settles. At the exact head these waits are outstanding."""
    settlement = SETTLEMENTS.source()
    moved = ("status", "settled_sequence", "resolution", "resolution_digest")
    return (
        update(waits)
        .values({waits.c[name]: settlement.c[name] for name in moved})
        .where(
            settlement.c.item == run.c[POSITION],
            waits.c.tenant_id == run.c.tenant_id,
            waits.c.run_id == run.c.run_id,
            waits.c.wait_id == settlement.c.wait_id,
            waits.c.status == "outstanding",
        )
        .cte("settle_waits")
    )
