"""When a run may be claimed that nobody can claim now: it is held back, or somebody's lease on it lives."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import DateTime, FromClause, ScalarSelect, Select, and_, any_, bindparam, func, select
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA
from sqlalchemy.sql.elements import ColumnElement

from agentruns.store.sets import ItemSet
from agentruns.store.statements.ready import LAST_EPOCH, available_at, tenants_in_line
from agentruns.store.tables import runs

TENANTS: Final = ItemSet("item", {"tenant_id": runs.c.tenant_id.type})

#: So many of a tenant's oldest runs are looked at for leases; a backlog behind its limit may be of any length.
_OLDEST: Final = 256
_SINCE: Final = bindparam("since", type_=DateTime(timezone=True))


@cache
def next_gate() -> Select[Any]:
    """Read the database's clock, and the earliest instant after a given one at which a run of the tenants opens.

    An instant that has passed meanwhile is an answer too: of that run a claim before it could know nothing.
    """
    return _next_gate(TENANTS.source())


@cache
def next_gate_of_all() -> Select[Any]:
    """Read the same of whatever tenants have runs in line; it costs what there are such tenants."""
    return _next_gate(tenants_in_line())


def _next_gate(tenants: FromClause) -> Select[Any]:
    gate = func.least(_held_back(tenants), _leased(tenants))
    return select(func.clock_timestamp().label("now"), func.min(gate).label("gate")).select_from(tenants)


def _may_open(tenant_id: ColumnElement[Any]) -> ColumnElement[bool]:
    return and_(
        runs.c.tenant_id == tenant_id,
        runs.c.scheduler_ready_at.is_not(None),
        runs.c.quarantined_at.is_(None),
        runs.c.fencing_epoch < LAST_EPOCH,
        runs.c.graph_definition_digest == any_(bindparam("graph_digests", type_=ARRAY(BYTEA()))),
    )


def _held_back(item: FromClause) -> ScalarSelect[Any]:
    """Give the end of the first run's gate: the ready index begins there."""
    return (
        select(available_at)
        .where(_may_open(item.c.tenant_id), available_at > _SINCE)
        .order_by(available_at, runs.c.run_id)
        .limit(1)
        .scalar_subquery()
    )


def _leased(item: FromClause) -> ScalarSelect[Any]:
    oldest = (
        select(runs.c.lease_expires_at)
        .where(_may_open(item.c.tenant_id), available_at <= _SINCE)
        .order_by(available_at, runs.c.run_id)
        .limit(_OLDEST)
        .correlate(item)
        .subquery("oldest")
    )
    return select(func.min(oldest.c.lease_expires_at)).where(oldest.c.lease_expires_at > _SINCE).scalar_subquery()
