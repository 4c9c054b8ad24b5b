"""How much waits for a worker: what is due, since when, and what is isolated, each counted up to a bound."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, ScalarSelect, Select, Text, func, literal_column, select, true

from agentruns.store.sets import ItemSet, materialized
from agentruns.store.statements.ready import available_at, has_known_graph, is_open, tenants_in_line
from agentruns.store.statements.tenant_walk import probe
from agentruns.store.tables import runs

TENANTS: Final = ItemSet("item", {"tenant_id": Text()})

#: More are not counted. It stands in the text, so that a plan that is made once knows that few rows come.
MOST: Final = 10_000
_MOST: Final[ColumnElement[int]] = literal_column(str(MOST))


@cache
def backlog() -> Select[Any]:
    """Measure the backlog of the tenants given."""
    tenants = TENANTS.source()
    of_tenant = select(runs.c.run_id).where(runs.c.tenant_id == tenants.c.tenant_id, runs.c.quarantined_at.is_not(None))
    each = of_tenant.correlate(tenants).lateral("each")
    return _backlog(tenants, select(each.c.run_id).select_from(tenants.join(each, true())))


@cache
def backlog_of_all() -> Select[Any]:
    """Measure the backlog of whatever tenants have runs in line; it costs what such tenants there are."""
    isolated = select(runs.c.run_id).where(runs.c.quarantined_at.is_not(None))
    # Named whole, the order is that of one index only.
    return _backlog(tenants_in_line(), isolated.order_by(runs.c.tenant_id, runs.c.quarantined_at, runs.c.run_id))


def _backlog(tenants: FromClause, isolated: Select[Any]) -> Select[Any]:
    clock = materialized(select(func.clock_timestamp().label("now")), "clock")
    now = select(clock.c.now).scalar_subquery()
    of_tenant = select(available_at.label("available_at"), has_known_graph.label("is_known")).where(
        is_open(tenants.c.tenant_id, now)
    )
    each = of_tenant.order_by(available_at, runs.c.run_id).correlate(tenants, clock).lateral("each")
    due = materialized(select(each.c.is_known).select_from(tenants.join(each, true())).limit(_MOST), "due")
    oldest = select(func.min(probe(_oldest(tenants, now)))).select_from(tenants)
    found = isolated.limit(_MOST).subquery("found")
    return select(
        clock.c.now,
        _count(select(func.count()).select_from(due)).label("due"),
        _count(select(func.count()).select_from(due).where(due.c.is_known.is_not(true()))).label("without_worker"),
        oldest.scalar_subquery().label("oldest_at"),
        _count(select(func.count()).select_from(found)).label("quarantined"),
    )


def _oldest(tenants: FromClause, now: ScalarSelect[Any]) -> Select[Any]:
    first = select(available_at).where(is_open(tenants.c.tenant_id, now))
    return first.order_by(available_at, runs.c.run_id).correlate(tenants)


def _count(counted: Select[Any]) -> ScalarSelect[Any]:
    return counted.scalar_subquery()
