"""Which runs are ready to be claimed, and which tenants have one."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    DateTime,
    Select,
    Text,
    Uuid,
    and_,
    any_,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA
from sqlalchemy.sql.elements import ColumnElement

from agentruns.store.sets import POSITION, ItemSet, materialized
from agentruns.store.statements import tenant_slots
from agentruns.store.statements.tenant_walk import AFTER, probe, walk
from agentruns.store.tables import runs

TENANTS: Final = ItemSet("item", {"tenant_id": Text()})

#: The greatest epoch; a run there is never claimed again.
LAST_EPOCH: Final = 2**63 - 1

available_at: Final = func.greatest(runs.c.scheduler_ready_at, runs.c.scheduler_not_before)

#: The order of the ready index. Named whole, it is the only index that gives it without a sort.
_IN_LINE: Final = (runs.c.tenant_id, available_at, runs.c.run_id)
_LIMIT: Final = bindparam("limit", type_=BigInteger())


#: Hold of a run whose graph is among ``graph_digests``.
has_known_graph: Final = runs.c.graph_definition_digest == any_(bindparam("graph_digests", type_=ARRAY(BYTEA())))


def is_ready(tenant_id: ColumnElement[Any], now: ColumnElement[Any]) -> ColumnElement[bool]:
    """Hold of a tenant's run that may be claimed now by a process that has one of ``graph_digests``.

    Arguments are those of :func:`is_open`.
    """
    return and_(is_open(tenant_id, now), has_known_graph)


def is_open(tenant_id: ColumnElement[Any], now: ColumnElement[Any]) -> ColumnElement[bool]:
    """Hold of a tenant's run that may be claimed now by a process that has its graph, whichever that is.

    Args:
        tenant_id: of the run.
        now: a scalar subquery over a clock that is read once, so that the ready index is read in order, without a sort.
    """
    return and_(
        runs.c.tenant_id == tenant_id,
        runs.c.scheduler_ready_at.is_not(None),
        runs.c.quarantined_at.is_(None),
        available_at <= now,
        runs.c.scheduler_ready_at <= now,
        or_(runs.c.lease_expires_at.is_(None), runs.c.lease_expires_at <= now),
        runs.c.fencing_epoch < LAST_EPOCH,
    )


@cache
def ready_among() -> Select[Any]:
    """Find which of the tenants have a ready run, and room under their limit: a probe for each, and no lock."""
    item = TENANTS.source()
    clock = materialized(select(func.clock_timestamp().label("now")), "clock")
    now = select(clock.c.now).scalar_subquery()
    is_any_ready = exists(select(runs.c.run_id).where(is_ready(item.c.tenant_id, now)).correlate(item))
    return (
        select(item.c[POSITION])
        .where(is_any_ready, tenant_slots.has_room(item.c.tenant_id, now))
        .order_by(item.c[POSITION])
    )


@cache
def ready_tenants() -> Select[Any]:
    """Find tenants with a ready run, and room under their limit, from the successor of one on and around to it.

    It walks the ready index, so it costs what tenants with claimable runs there are up to the last one found; neither
    other tenants nor further runs count.
    """
    clock = materialized(select(func.clock_timestamp().label("now")), "clock")
    now = select(clock.c.now).scalar_subquery()
    onward = walk("onward", _next_in_line, after=AFTER)
    around = walk("around", lambda before: _next_in_line(before, until=AFTER), after=literal_column("''", Text()))
    # The first walk is read to its end before the second one begins.
    ring = union_all(select(onward.c.tenant_id), select(around.c.tenant_id)).subquery("ring")
    oldest = select(runs.c.run_id).where(is_ready(ring.c.tenant_id, now)).order_by(available_at, runs.c.run_id)
    return (
        select(ring.c.tenant_id)
        .where(
            ring.c.tenant_id.is_not(None),
            probe(oldest.correlate(ring)).is_not(None),
            tenant_slots.has_room(ring.c.tenant_id, now),
        )
        .limit(_LIMIT)
    )


def tenants_in_line() -> CTE:
    """Walk from tenant to tenant, all of those that have a claimable run, ready or not; the last row has none."""
    return walk("in_line", _next_in_line, after=literal_column("''", Text()))


def _next_in_line(before: ColumnElement[Any], *, until: ColumnElement[Any] | None = None) -> ColumnElement[Any]:
    """Find the next tenant that has a claimable run, ready or not."""
    in_line = [runs.c.tenant_id > before, runs.c.scheduler_ready_at.is_not(None), runs.c.quarantined_at.is_(None)]
    if until is not None:
        in_line.append(runs.c.tenant_id <= until)
    return probe(select(runs.c.tenant_id).where(*in_line).order_by(*_IN_LINE).correlate_except(runs))


@cache
def ready_runs() -> Select[Any]:
    """List a tenant's ready runs after a place, in the order in which they would be claimed, and lock nothing.

    What is ready is judged at the cutoff, or now where none is given; a row without a run says which instant that was.
    """
    clock = _cutoff()
    now = select(clock.c.now).scalar_subquery()
    place = (available_at, runs.c.run_id)
    after = (
        bindparam("after_at", type_=DateTime(timezone=True)),
        bindparam("after_run", type_=Uuid(as_uuid=False)),
    )
    found = materialized(
        select(runs.c.run_id, available_at.label("available_at"), runs.c.graph_definition_digest.label("graph_digest"))
        .where(is_ready(bindparam("of_tenant", type_=Text()), now), tuple_(*place) > tuple_(*after))
        .order_by(*place)
        .limit(_LIMIT),
        "found",
    )
    answer = select(clock.c.now, *found.c).select_from(clock.outerjoin(found, true()))
    return answer.order_by(found.c.available_at, found.c.run_id)


def _cutoff() -> CTE:
    """Take the cutoff that is given, unless it lies ahead: nobody may look at what is not ready yet."""
    given = bindparam("cutoff_at", type_=DateTime(timezone=True))
    return materialized(select(func.least(given, func.clock_timestamp()).label("now")), "clock")
