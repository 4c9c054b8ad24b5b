"""Find what time has decided: timers that are due, interrupts that have expired, runs whose deadline is over.

What is found is advisory: the statement that acts decides on the locked row by its own reading of the clock. Each list
begins after a place in its own order, so a tenant with more candidates than a page is paged through by its index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    DateTime,
    FromClause,
    Select,
    Text,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA

from agentruns.store.sets import POSITION, ItemSet, materialized
from agentruns.store.statements.tenant_walk import AFTER, ONE, probe
from agentruns.store.tables import runs, waits

TENANTS: Final = ItemSet("item", {"tenant_id": Text()})

_TENANT: Final = bindparam("tenant_id", type_=Text())
_WAITS_OF_RUNS: Final = waits.join(runs, and_(runs.c.tenant_id == waits.c.tenant_id, runs.c.run_id == waits.c.run_id))


def _clock() -> CTE:
    """Read the clock once: an index serves no comparison with a function that moves."""
    return materialized(select(func.clock_timestamp().label("now")), "clock")


def _after(*place: ColumnElement[Any]) -> ColumnElement[bool]:
    given = [bindparam("after_at", type_=DateTime(timezone=True)), bindparam("after_run", type_=Uuid(as_uuid=False))]
    if len(place) > len(given):
        given.append(bindparam("after_wait", type_=Uuid(as_uuid=False)))
    return tuple_(*place) > tuple_(*given)


def _limit() -> ColumnElement[Any]:
    return bindparam("limit", type_=BigInteger())


@cache
def due_waits(instant: str) -> Select[Any]:
    """List outstanding waits whose instant has come: ``due_at`` of timers, ``expires_at`` of interrupts.

    Those of isolated runs, and of graphs that this process does not have, are passed over.
    """
    clock, at = _clock(), waits.c[instant]
    now = select(clock.c.now).scalar_subquery()
    place = (at, waits.c.run_id, waits.c.wait_id)
    return (
        select(waits.c.run_id, waits.c.wait_id, at.label("at"), clock.c.now)
        .select_from(_WAITS_OF_RUNS)
        .join(clock, true())
        .where(_is_due(at, _TENANT, now), _after(*place))
        .order_by(*place)
        .limit(_limit())
    )


@cache
def overdue_runs() -> Select[Any]:
    """List runs whose deadline is over and whose end nobody has asked for."""
    clock, at = _clock(), runs.c.agent_deadline_at
    now = select(clock.c.now).scalar_subquery()
    return (
        select(runs.c.run_id, at.label("at"), clock.c.now)
        .select_from(runs)
        .join(clock, true())
        .where(_is_overdue(_TENANT, now), _after(at, runs.c.run_id))
        .order_by(at, runs.c.run_id)
        .limit(_limit())
    )


@cache
def due_tenants() -> Select[Any]:
    """Find tenants for which one of the lists above is not empty, in the order of their ids from a successor on.

    It walks the three indexes at once, so it costs what tenants with a deadline or a wait that has an instant there
    are up to the last one found, however much of it one of them has. Of most of them nothing is read but the earliest
    instant, which the walk brings along: only where that has come the lists are asked.
    """
    clock = _clock()
    now = select(clock.c.now).scalar_subquery()
    visited = _visited()
    tenant_id = visited.c.tenant_id
    has_come = or_(
        *(and_(visited.c[f"{name}_tenant"] == tenant_id, visited.c[f"{name}_at"] <= now) for name in _INDEXES)
    )
    return select(tenant_id).where(tenant_id.is_not(None), has_come, _is_anything_due(visited, now)).limit(_limit())


@cache
def due_among() -> Select[Any]:
    """Find for which of the tenants one of the lists above is not empty: a probe of each list for each of them."""
    item, clock = TENANTS.source(), _clock()
    now = select(clock.c.now).scalar_subquery()
    return select(item.c[POSITION]).where(_is_anything_due(item, now)).order_by(item.c[POSITION])


def _is_anything_due(tenants: FromClause, now: ColumnElement[Any]) -> ColumnElement[bool]:
    tenant_id = tenants.c.tenant_id
    due = [select(runs.c.run_id).where(_is_overdue(tenant_id, now)).order_by(runs.c.agent_deadline_at, runs.c.run_id)]
    for instant in ("due_at", "expires_at"):
        at = waits.c[instant]
        of_tenant = select(waits.c.run_id).select_from(_WAITS_OF_RUNS).where(_is_due(at, tenant_id, now))
        due.append(of_tenant.order_by(at, waits.c.run_id, waits.c.wait_id))
    return or_(*(probe(each.correlate(tenants)).is_not(None) for each in due))


def _visited() -> CTE:
    """Visit the tenants of the three indexes in the order of their ids; a last row, without a tenant, ends the walk.

    A row has the first entry of each index that does not precede its tenant: the tenant's earliest instant there, or
    that of a later one. Only where it is the tenant's a step descends into the index again.
    """
    beginning = {name: entry(AFTER, []).lateral(f"first_{name}") for name, entry in _INDEXES.items()}
    begun = {name: (entry.c.tenant_id, entry.c.at) for name, entry in beginning.items()}
    nothing = select(literal_column("1").label("one")).subquery("nothing")
    visited = select(*_visit(begun)).select_from(_joined(nothing, beginning.values())).cte("visited", recursive=True)
    is_here = {name: visited.c[f"{name}_tenant"] == visited.c.tenant_id for name in _INDEXES}
    following = {
        name: entry(visited.c.tenant_id, [is_here[name]]).lateral(f"next_{name}") for name, entry in _INDEXES.items()
    }
    gone_on = {
        name: (
            case((is_here[name], entry.c.tenant_id), else_=visited.c[f"{name}_tenant"]),
            case((is_here[name], entry.c.at), else_=visited.c[f"{name}_at"]),
        )
        for name, entry in following.items()
    }
    further = select(*_visit(gone_on)).select_from(_joined(visited, following.values()))
    return visited.union_all(further.where(visited.c.tenant_id.is_not(None)))


def _visit(entries: Mapping[str, tuple[ColumnElement[Any], ColumnElement[Any]]]) -> Iterator[ColumnElement[Any]]:
    """Give the columns of a row of the walk: the first tenant, and where each index stands."""
    yield func.least(*(tenant_id for tenant_id, _ in entries.values()), type_=Text()).label("tenant_id")
    for name, (tenant_id, at) in entries.items():
        yield tenant_id.label(f"{name}_tenant")
        yield at.label(f"{name}_at")


def _joined(rows: FromClause, entries: Iterable[FromClause]) -> FromClause:
    for entry in entries:
        rows = rows.outerjoin(entry, true())
    return rows


def _next_deadline(before: ColumnElement[Any], conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    at = runs.c.agent_deadline_at
    of_runs = select(runs.c.tenant_id, at.label("at")).where(runs.c.tenant_id > before, *_may_be_overdue(), *conditions)
    return of_runs.order_by(runs.c.tenant_id, at, runs.c.run_id).limit(ONE).correlate_except(runs)


def _next_wait(instant: str, before: ColumnElement[Any], conditions: Sequence[ColumnElement[bool]]) -> Select[Any]:
    at = waits.c[instant]
    of_waits = select(waits.c.tenant_id, at.label("at")).where(
        waits.c.tenant_id > before, *_may_be_due(at), *conditions
    )
    in_order = of_waits.order_by(waits.c.tenant_id, at, waits.c.run_id, waits.c.wait_id)
    return in_order.limit(ONE).correlate_except(waits)


#: The first entry of each index for a tenant that follows another one.
_INDEXES: Final[Mapping[str, Callable[[ColumnElement[Any], Sequence[ColumnElement[bool]]], Select[Any]]]] = {
    "deadline": _next_deadline,
    "due": partial(_next_wait, "due_at"),
    "expiry": partial(_next_wait, "expires_at"),
}


def _may_be_due(at: ColumnElement[Any]) -> list[ColumnElement[bool]]:
    """Hold of the waits that the index over an instant has."""
    return [at.is_not(None), waits.c.status == literal_column("'outstanding'")]


def _is_due(at: ColumnElement[Any], tenant_id: ColumnElement[Any], now: ColumnElement[Any]) -> ColumnElement[bool]:
    return and_(
        waits.c.tenant_id == tenant_id,
        *_may_be_due(at),
        at <= now,
        runs.c.quarantined_at.is_(None),
        runs.c.graph_definition_digest == any_(bindparam("graph_digests", type_=ARRAY(BYTEA()))),
    )


def _may_be_overdue() -> list[ColumnElement[bool]]:
    """Hold of the runs that the index over deadlines has."""
    statuses: list[ColumnElement[Any]] = [literal_column("'active'"), literal_column("'waiting'")]
    return [runs.c.agent_deadline_at.is_not(None), runs.c.status.in_(statuses), runs.c.quarantined_at.is_(None)]


def _is_overdue(tenant_id: ColumnElement[Any], now: ColumnElement[Any]) -> ColumnElement[bool]:
    return and_(runs.c.tenant_id == tenant_id, *_may_be_overdue(), runs.c.agent_deadline_at <= now)
