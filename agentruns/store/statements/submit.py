"""Admit runs: the submission row decides, and everything else is inserted from what that insert returned."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import CTE, BigInteger, Select, Text, and_, bindparam, cast, exists, func, select, true
from sqlalchemy.dialects.postgresql import BYTEA, INTERVAL, insert

from agentruns.store.sets import POSITION, RUN, ItemSet, columns_of, materialized
from agentruns.store.tables import admissions, checkpoints, events, graphs, keys, runs

ITEMS: Final = ItemSet(
    "item",
    RUN
    | columns_of(keys.c.key_digest, keys.c.submission_digest, runs.c.thread_id, runs.c.invocation_id)
    | columns_of(runs.c.graph_definition_digest, runs.c.agent_deadline_at, runs.c.trace_context)
    | {"admitted_at": runs.c.changed_at.type}
    | columns_of(events.c.event_id, events.c.kind, events.c.schema_digest, events.c.data)
    | {"event_digest": BYTEA()}
    | columns_of(checkpoints.c.checkpoint_id, checkpoints.c.ready, checkpoints.c.state)
    | {"checkpoint_digest": BYTEA()}
    | columns_of(admissions.c.agent_name, admissions.c.agent_version, admissions.c.body, admissions.c.admission_digest),
)

_FIRST: Final = 1


@cache
def admit() -> Select[Any]:
    """Insert admissions; a row comes back for each item that was admitted, and the clock in any case."""
    item = materialized(select(ITEMS.source()), "item_row")
    clock = materialized(select(func.clock_timestamp().label("now")), "clock")
    submission = _insert_submission(_guard(item, clock))
    admitted = item.join(
        submission, and_(submission.c.tenant_id == item.c.tenant_id, submission.c.run_id == item.c.run_id)
    )
    now = func.clock_timestamp().label("now")
    answer = select(now, submission.c.tenant_id, submission.c.run_id).select_from(clock.outerjoin(submission, true()))
    return answer.add_cte(
        _insert_run(item, admitted),
        _insert_event(item, admitted),
        _insert_checkpoint(item, admitted),
        _insert_admission(item, admitted),
    )


def _guard(item: CTE, clock: CTE) -> CTE:
    """Pass the items that may be admitted at this instant; why others may not is for the probe to say."""
    graph = exists(
        select(1).where(
            graphs.c.tenant_id == item.c.tenant_id, graphs.c.definition_digest == item.c.graph_definition_digest
        )
    )
    run = exists(select(1).where(runs.c.tenant_id == item.c.tenant_id, runs.c.run_id == item.c.run_id))
    now = clock.c.now
    rows = select(item.c[POSITION], item.c.tenant_id, item.c.run_id, item.c.key_digest, item.c.submission_digest)
    rows = rows.add_columns(item.c.admitted_at).where(
        now < item.c.agent_deadline_at,
        item.c.admitted_at <= now,
        item.c.admitted_at >= now - bindparam("stamp_age", type_=INTERVAL()),
        graph,
        ~run,
    )
    return materialized(rows, "guard")


def _insert_submission(guard: CTE) -> CTE:
    """Let the primary key arbitrate: one table decides key and run id together, and a lost race raises nothing."""
    rows = select(
        guard.c.tenant_id,
        guard.c.run_id,
        cast("admitted", Text),
        guard.c.key_digest,
        guard.c.submission_digest,
        guard.c.admitted_at,
    ).order_by(guard.c.tenant_id, guard.c.key_digest)
    columns = [*RUN, "origin", "key_digest", "submission_digest", "created_at"]
    statement = insert(keys).from_select(columns, rows).on_conflict_do_nothing()
    return statement.returning(keys.c.tenant_id, keys.c.run_id).cte("submission")


def _insert_run(item: CTE, admitted: Any) -> CTE:
    values = {
        "tenant_id": item.c.tenant_id,
        "run_id": item.c.run_id,
        "thread_id": item.c.thread_id,
        "invocation_id": item.c.invocation_id,
        "status": cast("active", Text),
        "revision": cast(_FIRST, BigInteger),
        "changed_at": item.c.admitted_at,
        "lifecycle_sequence": cast(_FIRST, BigInteger),
        "head_sequence": cast(_FIRST, BigInteger),
        "head_digest": item.c.event_digest,
        "head_recorded_at": item.c.admitted_at,
        "fencing_epoch": cast(0, BigInteger),
        "trace_context": item.c.trace_context,
        "superstep": cast(0, BigInteger),
        "checkpoint_digest": item.c.checkpoint_digest,
        "scheduler_ready_at": item.c.admitted_at,
        "graph_definition_digest": item.c.graph_definition_digest,
        "agent_deadline_at": item.c.agent_deadline_at,
    }
    return _insert(runs, values, admitted)


def _insert_event(item: CTE, admitted: Any) -> CTE:
    values = {
        "tenant_id": item.c.tenant_id,
        "run_id": item.c.run_id,
        "sequence": cast(_FIRST, BigInteger),
        "event_id": item.c.event_id,
        "recorded_at": item.c.admitted_at,
        "epoch": cast(0, BigInteger),
        "kind": item.c.kind,
        "schema_digest": item.c.schema_digest,
        "data": item.c.data,
        "digest": item.c.event_digest,
    }
    return _insert(events, values, admitted)


def _insert_checkpoint(item: CTE, admitted: Any) -> CTE:
    values = {
        "tenant_id": item.c.tenant_id,
        "run_id": item.c.run_id,
        "superstep": cast(0, BigInteger),
        "checkpoint_id": item.c.checkpoint_id,
        "ready": item.c.ready,
        "state": item.c.state,
        "digest": item.c.checkpoint_digest,
        "sequence": cast(_FIRST, BigInteger),
    }
    return _insert(checkpoints, values, admitted)


def _insert_admission(item: CTE, admitted: Any) -> CTE:
    values = {
        "tenant_id": item.c.tenant_id,
        "run_id": item.c.run_id,
        "agent_name": item.c.agent_name,
        "agent_version": item.c.agent_version,
        "body": item.c.body,
        "admission_digest": item.c.admission_digest,
        "sequence": cast(_FIRST, BigInteger),
    }
    return _insert(admissions, values, admitted)


def _insert(table: Any, values: dict[str, Any], admitted: Any) -> CTE:
    rows = select(*values.values()).select_from(admitted).order_by(values["tenant_id"], values["run_id"])
    return insert(table).from_select(list(values), rows).cte(f"insert_{table.name}")


# --- why an item was not admitted ---------------------------------------------------------------------------------

PROBES: Final = ItemSet("item", RUN | columns_of(keys.c.key_digest, runs.c.graph_definition_digest))


@cache
def probe() -> Select[Any]:
    """Look for what stands under each key and candidate run id. No lock is taken and no evidence read."""
    item = PROBES.source()
    by_key = keys.alias("by_key")
    by_run = keys.alias("by_run")
    graph = exists(
        select(1).where(
            graphs.c.tenant_id == item.c.tenant_id, graphs.c.definition_digest == item.c.graph_definition_digest
        )
    )
    return select(
        item.c[POSITION],
        func.clock_timestamp().label("now"),
        (func.current_setting("transaction_read_only") == "on").label("is_read_only"),
        by_key.c.run_id.label("key_run_id"),
        by_key.c.submission_digest.label("key_submission_digest"),
        runs.c.run_id.label("candidate_run_id"),
        by_run.c.submission_digest.label("candidate_submission_digest"),
        graph.label("has_graph"),
    ).select_from(
        item.outerjoin(by_key, and_(by_key.c.tenant_id == item.c.tenant_id, by_key.c.key_digest == item.c.key_digest))
        .outerjoin(runs, and_(runs.c.tenant_id == item.c.tenant_id, runs.c.run_id == item.c.run_id))
        .outerjoin(
            by_run,
            and_(
                by_run.c.tenant_id == item.c.tenant_id,
                by_run.c.run_id == item.c.run_id,
                by_run.c.origin == "admitted",
            ),
        )
    )


# --- a key for a run that was admitted without one ------------------------------------------------------------------

ATTACHMENTS: Final = ItemSet("item", RUN | columns_of(keys.c.key_digest) | {"keyless_digest": keys.c.key_digest.type})


@cache
def attach() -> Select[Any]:
    """Give a key to runs that have none; a row comes back for each that took it.

    The run's row is locked against its removal: whoever waits for a removal finds no row afterwards, and no error.
    """
    item = ATTACHMENTS.source()
    rows = (
        select(
            keys.c.tenant_id,
            keys.c.run_id,
            cast("attached", Text),
            item.c.key_digest,
            keys.c.submission_digest,
            func.clock_timestamp(),
        )
        .join_from(item, keys, and_(keys.c.tenant_id == item.c.tenant_id, keys.c.run_id == item.c.run_id))
        .join(runs, and_(runs.c.tenant_id == item.c.tenant_id, runs.c.run_id == item.c.run_id))
        .where(keys.c.origin == "admitted", keys.c.key_digest == item.c.keyless_digest)
        .order_by(keys.c.tenant_id, item.c.key_digest)
        .with_for_update(read=True, key_share=True, of=runs)
    )
    columns = [*RUN, "origin", "key_digest", "submission_digest", "created_at"]
    # A run never has two keys, and the first to commit wins: both unique indexes arbitrate, nothing raises.
    attached = insert(keys).from_select(columns, rows).on_conflict_do_nothing()
    returned = attached.returning(keys.c.tenant_id, keys.c.run_id).cte("attached")
    return select(returned.c.tenant_id, returned.c.run_id)
