"""Read what explains a run: its row and what stands beside it, by primary keys. Nothing is locked or verified."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    FromClause,
    LargeBinary,
    Select,
    Text,
    Uuid,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import distinct_on

from agentruns.store.sets import materialized
from agentruns.store.statements import tenant_slots
from agentruns.store.tables import (
    attempts,
    events,
    graphs,
    outcomes,
    quarantine_releases,
    quarantines,
    results,
    runs,
    shards,
    tenant_limits,
    waits,
)

RUN_COLUMNS: Final = (
    "status",
    "superstep",
    "head_recorded_at",
    "fencing_epoch",
    "lease_renewed_at",
    "lease_expires_at",
    "quarantined_at",
    "scheduler_ready_at",
    "scheduler_not_before",
    "graph_definition_digest",
    "agent_deadline_at",
)
ATTEMPT_COLUMNS: Final = (
    "node_id",
    "attempt",
    "epoch",
    "started_at",
    "status",
    "ended_at",
    "retry_not_before",
    "body",
    "digest",
)
WAIT_COLUMNS: Final = ("wait_id", "kind", "registered_at", "due_at", "expires_at")


def _of_tenant() -> ColumnElement[Any]:
    return bindparam("of_tenant", type_=Text())


@cache
def observed() -> Select[Any]:
    """Read one run, its waits and its last attempts as arrays, at one instant; no row where the tenant has none."""
    run = _run()
    isolation, asked = _isolation(run), _asked(run)
    attempted = _gathered("attempt", _attempted(run), ATTEMPT_COLUMNS)
    outstanding = _gathered("wait", _outstanding(run), WAIT_COLUMNS)
    is_pinned = and_(graphs.c.tenant_id == run.c.tenant_id, graphs.c.definition_digest == run.c.graph_definition_digest)
    return select(
        run.c.now,
        *(run.c[name] for name in RUN_COLUMNS),
        graphs.c.graph_name,
        graphs.c.graph_version,
        *isolation.c,
        *asked.c,
        *attempted.c,
        *outstanding.c,
    ).select_from(
        run.outerjoin(graphs, is_pinned)
        .outerjoin(isolation, true())
        .outerjoin(asked, true())
        .join(attempted, true())
        .join(outstanding, true())
    )


def _run() -> CTE:
    columns = (runs.c[name] for name in ("tenant_id", "run_id", *RUN_COLUMNS))
    return materialized(
        select(func.clock_timestamp().label("now"), *columns).where(
            runs.c.tenant_id == _of_tenant(), runs.c.run_id == bindparam("of_run", type_=Uuid(as_uuid=False))
        ),
        "run",
    )


def _same(one: FromClause, other: FromClause, *more: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(one.c.tenant_id == other.c.tenant_id, one.c.run_id == other.c.run_id, *more)


def _isolation(run: CTE) -> CTE:
    """Read the record that isolates the run now."""
    is_released = exists(
        select(1).where(
            _same(quarantine_releases, quarantines, quarantine_releases.c.quarantine_id == quarantines.c.quarantine_id)
        )
    )
    return (
        select(quarantines.c.quarantine_id, quarantines.c.cause_kind, quarantines.c.component)
        .join_from(run, quarantines, _same(quarantines, run))
        .where(run.c.quarantined_at.is_not(None), ~is_released)
        .order_by(quarantines.c.quarantined_at.desc(), quarantines.c.quarantine_id)
        .limit(1)
        .cte("isolation")
    )


def _asked(run: CTE) -> CTE:
    """Read the event that asked for the end of the run."""
    return (
        select(
            events.c.event_id.label("request_event_id"),
            events.c.recorded_at.label("requested_at"),
            events.c.kind.label("request_kind"),
        )
        .select_from(
            run.join(outcomes, _same(outcomes, run, outcomes.c.kind == "cancellation")).join(
                events, _same(events, outcomes, events.c.sequence == outcomes.c.sequence)
            )
        )
        .cte("asked")
    )


def _outstanding(run: CTE) -> CTE:
    return (
        select(
            waits.c.wait_id,
            waits.c.kind,
            events.c.recorded_at.label("registered_at"),
            waits.c.due_at,
            waits.c.expires_at,
        )
        .select_from(
            run.join(waits, _same(waits, run, waits.c.status == "outstanding")).outerjoin(
                events, _same(events, waits, events.c.sequence == waits.c.sequence)
            )
        )
        .cte("outstanding")
    )


def _attempted(run: CTE) -> CTE:
    """Read the last attempt of each node that was started in the run's superstep.

    Of failures only three travel: the first one for good, and of the others the first to be over and the first to come.
    """
    last = (
        select(attempts)
        .join_from(run, attempts, _same(attempts, run, attempts.c.superstep == run.c.superstep))
        .ext(distinct_on(attempts.c.node_id))
        .order_by(attempts.c.node_id, attempts.c.attempt.desc())
        .cte("last")
    )
    started, ended = events.alias("started"), events.alias("ended")
    is_result = _same(
        results,
        last,
        results.c.superstep == last.c.superstep,
        results.c.node_id == last.c.node_id,
        results.c.attempt == last.c.attempt,
    )
    gate = results.c.retry_not_before
    place = func.row_number().over(
        partition_by=[results.c.status, gate.is_(None), gate > run.c.now], order_by=[gate, last.c.node_id]
    )
    return (
        select(
            last.c.node_id,
            last.c.attempt,
            started.c.epoch,
            started.c.recorded_at.label("started_at"),
            results.c.status,
            ended.c.recorded_at.label("ended_at"),
            gate,
            case((and_(results.c.status == "failed", place == 1), results.c.body)).label("body"),
            results.c.digest,
        )
        .select_from(
            run.join(last, true())
            .outerjoin(started, _same(started, last, started.c.sequence == last.c.sequence))
            .outerjoin(results, is_result)
            .outerjoin(ended, _same(ended, results, ended.c.sequence == results.c.sequence))
        )
        .cte("attempted")
    )


def _gathered(prefix: str, rows: CTE, names: tuple[str, ...]) -> CTE:
    """Aggregate rows to one array per column, all in one order; one row, of nulls where there are none."""
    columns = [func.array_agg(rows.c[name]).label(f"{prefix}_{name}") for name in names]
    return select(*columns).cte(f"{prefix}_arrays")


@cache
def conditions() -> Select[Any]:
    """Read whether a tenant's run that is due may be claimed, and the definition of its graph."""
    clock = materialized(select(func.clock_timestamp().label("now")), "clock")
    now = select(clock.c.now).scalar_subquery()
    live = select(func.count(type_=BigInteger())).where(
        runs.c.tenant_id == _of_tenant(),
        runs.c.scheduler_ready_at.is_not(None),
        runs.c.quarantined_at.is_(None),
        runs.c.lease_expires_at > now,
    )
    limit = select(tenant_limits.c.maximum_live).where(tenant_limits.c.tenant_id == _of_tenant())
    definition = select(graphs.c.definition).where(
        graphs.c.tenant_id == _of_tenant(),
        graphs.c.definition_digest == bindparam("of_graph", type_=LargeBinary()),
    )
    return select(
        live.scalar_subquery().label("live_leases"),
        limit.scalar_subquery().label("maximum_live"),
        tenant_slots.has_room(_of_tenant(), now).label("has_room"),
        _is_in_policy().label("is_in_policy"),
        definition.scalar_subquery().label("definition"),
    )


def _is_in_policy() -> ColumnElement[bool]:
    """Hold where a policy has the tenant as a member, or where there is none.

    Policies are canonical bytes and tenants have characters that JSON does not escape, so the member is found as it is
    written, and nothing else is written so.
    """
    member = func.convert_to(literal('"tenant_id":"').concat(_of_tenant()).concat('"'), "UTF8")
    is_listed = func.pg_catalog.position(shards.c.policy, member) > 0
    return or_(~exists(select(shards.c.shard_id)), exists(select(shards.c.shard_id).where(is_listed)))
