"""Commit what a worker found: completions, a barrier, starts or an end of many runs in one statement.

The statement is uniform, its arrays empty for what an item lacks, so everything that workers commit merges. Being at
the exact head, under a live lease, decides all but the clock: the head is the version of the run.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    Boolean,
    DateTime,
    Interval,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.sql.elements import ColumnElement

from agentruns.store.sets import CHILD, POSITION, RUN, ItemSet, columns_of
from agentruns.store.statements.guards import Refusal, fence_refusals, head_refusal, judge, lock_runs
from agentruns.store.tables import attempts, checkpoints, events, outcomes, results, runs, waits

ITEMS = ItemSet(
    "item",
    {
        **RUN,
        "epoch": BigInteger(),
        "attempt_id": runs.c.lease_attempt_id.type,
        "expected_sequence": BigInteger(),
        "expected_digest": BYTEA(),
        "recorded_at": DateTime(timezone=True),
        "gate": DateTime(timezone=True),
        "extends": Boolean(),
        **columns_of(runs.c.head_sequence, runs.c.head_digest, runs.c.status, runs.c.revision),
        **columns_of(checkpoints.c.superstep, checkpoints.c.checkpoint_id, checkpoints.c.ready, checkpoints.c.state),
        "checkpoint_digest": BYTEA(),
        "checkpoint_sequence": BigInteger(),
        "outcome_body": BYTEA(),
        "outcome_digest": BYTEA(),
    },
)
EVENTS = ItemSet(
    "event",
    CHILD
    | columns_of(
        events.c.sequence, events.c.event_id, events.c.kind, events.c.schema_digest, events.c.data, events.c.digest
    ),
)
STARTS = ItemSet(
    "start",
    CHILD
    | columns_of(
        attempts.c.superstep, attempts.c.node_id, attempts.c.attempt, attempts.c.attempt_id, attempts.c.sequence
    ),
)
RESULTS = ItemSet(
    "result",
    CHILD
    | columns_of(
        results.c.superstep,
        results.c.node_id,
        results.c.attempt,
        results.c.status,
        results.c.body,
        results.c.digest,
        results.c.retry_not_before,
        results.c.sequence,
    ),
)
WAITS = ItemSet(
    "wait",
    CHILD
    | columns_of(
        waits.c.wait_id,
        waits.c.kind,
        waits.c.registration,
        waits.c.digest,
        waits.c.sequence,
        waits.c.due_at,
        waits.c.expires_at,
    ),
)
#: Wait ids that completions of an item bring; none may stand in the run already.
NEW_WAITS = ItemSet("new_wait", CHILD | columns_of(waits.c.wait_id))


@cache
def run_commit(*, skip_locked: bool) -> Select[Any]:
    """Build the statement; with ``skip_locked`` it waits for nobody and leaves out the items whose row is held."""
    locked = lock_runs(ITEMS, skip_locked=skip_locked)
    judged = judge(locked, _refusals)
    run = _advance(judged)
    statement = select(
        judged.c[POSITION], judged.c.answer, judged.c.now, run.c.lease_renewed_at, run.c.lease_expires_at
    ).select_from(judged.outerjoin(run, run.c[POSITION] == judged.c[POSITION]))
    return statement.add_cte(
        _insert_children(run, EVENTS, events, recorded_at=run.c.recorded_at, epoch=run.c.epoch),
        _insert_children(run, STARTS, attempts),
        _insert_children(run, RESULTS, results),
        _insert_children(run, WAITS, waits, status=cast("outstanding", Text)),
        _insert_checkpoint(run, judged),
        _insert_outcome(run, judged),
    )


def _refusals(locked: CTE, now: ColumnElement[Any]) -> list[Refusal]:
    stamp = locked.c.recorded_at
    oldest = now - bindparam("stamp_age", type_=Interval())
    return [
        *fence_refusals(locked, now),
        (now < locked.c.run_head_recorded_at, "clock"),
        head_refusal(locked),
        (or_(stamp < locked.c.run_head_recorded_at, stamp > now, stamp < oldest), "stamp"),
        (locked.c.gate > now, "gate"),
        (_reuses_wait(locked), "wait_id"),
    ]


def _reuses_wait(locked: CTE) -> ColumnElement[bool]:
    """Find a wait id that the run has used before: an id is unique in its run for ever."""
    new_wait = NEW_WAITS.source()
    same = and_(
        waits.c.tenant_id == locked.c.tenant_id,
        waits.c.run_id == locked.c.run_id,
        waits.c.wait_id == new_wait.c.wait_id,
    )
    found = select(1).select_from(new_wait.join(waits, same)).where(new_wait.c.item == locked.c[POSITION])
    return exists(found.correlate(locked))


def _advance(judged: CTE) -> CTE:
    """Move the run row once: head, superstep, lifecycle and lease together, HOT unless the run ends or waits."""
    moves = judged.c.status.is_not(None)
    extended = func.greatest(runs.c.lease_expires_at, judged.c.now + bindparam("lease_duration", type_=Interval()))
    lease = {
        runs.c.lease_attempt_id: case((moves, None), else_=runs.c.lease_attempt_id),
        runs.c.lease_acquired_at: case((moves, None), else_=runs.c.lease_acquired_at),
        runs.c.lease_renewed_at: case((moves, None), (judged.c.extends, judged.c.now), else_=runs.c.lease_renewed_at),
        runs.c.lease_expires_at: case((moves, None), (judged.c.extends, extended), else_=runs.c.lease_expires_at),
        runs.c.scheduler_ready_at: case((moves, None), else_=runs.c.scheduler_ready_at),
    }
    statement = (
        update(runs)
        .values(
            {
                runs.c.head_sequence: judged.c.head_sequence,
                runs.c.head_digest: judged.c.head_digest,
                runs.c.head_recorded_at: judged.c.recorded_at,
                runs.c.superstep: func.coalesce(judged.c.superstep, runs.c.superstep),
                runs.c.checkpoint_digest: func.coalesce(judged.c.checkpoint_digest, runs.c.checkpoint_digest),
                runs.c.status: func.coalesce(judged.c.status, runs.c.status),
                runs.c.revision: func.coalesce(judged.c.revision, runs.c.revision),
                runs.c.changed_at: case((moves, judged.c.recorded_at), else_=runs.c.changed_at),
                runs.c.lifecycle_sequence: case((moves, judged.c.head_sequence), else_=runs.c.lifecycle_sequence),
                **lease,
            }
        )
        .where(runs.c.tenant_id == judged.c.tenant_id, runs.c.run_id == judged.c.run_id, judged.c.answer == "done")
        .returning(
            judged.c[POSITION],
            runs.c.tenant_id,
            runs.c.run_id,
            judged.c.recorded_at,
            judged.c.epoch,
            runs.c.lease_renewed_at,
            runs.c.lease_expires_at,
        )
    )
    return statement.cte("run")


def _insert_children(run: CTE, item_set: ItemSet, table: Any, **constants: ColumnElement[Any]) -> CTE:
    """Insert the child rows of the runs that moved, in key order; a refused item has none."""
    child = item_set.source()
    names = [name for name in item_set.columns if name not in CHILD]
    rows = (
        select(run.c.tenant_id, run.c.run_id, *(child.c[name] for name in names), *constants.values())
        .join_from(run, child, child.c.item == run.c[POSITION])
        .order_by(run.c.tenant_id, run.c.run_id, child.c.sequence)
    )
    return insert(table).from_select([*RUN, *names, *constants], rows).cte(f"insert_{table.name}")


def _insert_checkpoint(run: CTE, judged: CTE) -> CTE:
    rows = (
        select(
            run.c.tenant_id,
            run.c.run_id,
            judged.c.superstep,
            judged.c.checkpoint_id,
            judged.c.ready,
            judged.c.state,
            judged.c.checkpoint_digest,
            judged.c.checkpoint_sequence,
        )
        .join_from(run, judged, judged.c[POSITION] == run.c[POSITION])
        .where(judged.c.checkpoint_id.is_not(None))
        .order_by(run.c.tenant_id, run.c.run_id)
    )
    columns = [*RUN, "superstep", "checkpoint_id", "ready", "state", "digest", "sequence"]
    return insert(checkpoints).from_select(columns, rows).cte("insert_checkpoint")


def _insert_outcome(run: CTE, judged: CTE) -> CTE:
    rows = (
        select(
            run.c.tenant_id,
            run.c.run_id,
            cast("outcome", Text),
            judged.c.outcome_body,
            judged.c.outcome_digest,
            judged.c.head_sequence,
        )
        .join_from(run, judged, judged.c[POSITION] == run.c[POSITION])
        .where(judged.c.outcome_body.is_not(None))
        .order_by(run.c.tenant_id, run.c.run_id)
    )
    columns = [*RUN, "kind", "body", "digest", "sequence"]
    return insert(outcomes).from_select(columns, rows).cte("insert_outcome")
