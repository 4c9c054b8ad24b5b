"""Places for the live leases of tenants that have a limit.

A place is free when the claim that took it last holds no live lease. That is looked up at each claim and stored
nowhere: a dead worker cannot leak a place, and nobody has to give one back.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    Select,
    SmallInteger,
    Text,
    and_,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
    true,
    type_coerce,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by, insert
from sqlalchemy.sql.elements import ColumnElement

from agentruns.store.sets import POSITION, materialized
from agentruns.store.tables import runs, tenant_limits, tenant_slots

#: How many runs are wanted.
WANTED: Final = bindparam("limit", type_=BigInteger())

_SERIALS: Final = ARRAY(BigInteger())
#: The run that took a place last, under the fence that it then had.
_HOLDER: Final = and_(
    runs.c.tenant_id == tenant_slots.c.tenant_id,
    runs.c.run_id == tenant_slots.c.run_id,
    runs.c.fencing_epoch == tenant_slots.c.fencing_epoch,
)


def _of_tenant(column: ColumnElement[Any]) -> ColumnElement[bool]:
    return column == bindparam("of_tenant", type_=Text())


# --- in a claim ------------------------------------------------------------------------------------------------------


@cache
def limited() -> CTE:
    """Read the tenant's limit; no row when it has none."""
    return materialized(
        select(tenant_limits.c.maximum_live).where(
            _of_tenant(tenant_limits.c.tenant_id), tenant_limits.c.maximum_live.is_not(None)
        ),
        "limited",
    )


def _is_within_limit() -> ColumnElement[bool]:
    maximum = select(limited().c.maximum_live).scalar_subquery()
    return and_(_of_tenant(tenant_slots.c.tenant_id), tenant_slots.c.slot < maximum)


def free(*, needed: ColumnElement[bool]) -> CTE:
    """Lock places that are free, as many as are wanted, lowest first; those that others hold are passed over.

    A place that was taken after the snapshot of the statement has another serial by the time that it is locked, and is
    no longer free. The serials come as one array, which needs places without a gap from 0: joined to the places again
    they would be searched for each of them.
    """
    seen = materialized(
        select(tenant_slots.c.slot, tenant_slots.c.serial, tenant_slots.c.run_id, tenant_slots.c.fencing_epoch).where(
            _is_within_limit()
        ),
        "seen",
    )
    lapsed = _lapsed(seen)
    in_order = aggregate_order_by(seen.c.serial, seen.c.slot)
    serials = select(func.array_agg(in_order, type_=_SERIALS)).scalar_subquery()
    is_unchanged = tenant_slots.c.serial == type_coerce(serials, _SERIALS)[tenant_slots.c.slot + 1]
    is_held = exists(
        select(runs.c.run_id).where(
            _HOLDER, runs.c.lease_attempt_id.is_not(None), runs.c.run_id.not_in(select(lapsed.c.run_id))
        )
    )
    rows = (
        select(tenant_slots.c.tenant_id, tenant_slots.c.slot)
        .where(_is_within_limit(), is_unchanged, ~is_held, needed)
        .order_by(tenant_slots.c.slot)
        .limit(WANTED)
        .with_for_update(key_share=True, of=tenant_slots, skip_locked=True)
    )
    return materialized(rows, "free")


def _lapsed(seen: CTE) -> CTE:
    """Lock runs whose leases the snapshot shows expired: one may be under renewal by a statement that is not over.

    A run that is locked, or one too many, counts as held.
    """
    rows = (
        select(runs.c.run_id)
        .join_from(seen, runs, and_(runs.c.run_id == seen.c.run_id, runs.c.fencing_epoch == seen.c.fencing_epoch))
        .where(_of_tenant(runs.c.tenant_id), runs.c.lease_expires_at <= func.statement_timestamp())
        .order_by(seen.c.slot)
        .limit(WANTED)
        .with_for_update(key_share=True, of=runs, skip_locked=True)
    )
    return materialized(rows, "lapsed")


def room(free_slots: CTE) -> ColumnElement[int]:
    """Say how many runs may be taken: as many as there are free places, or as are wanted where there is no limit."""
    places = select(func.count()).select_from(free_slots).scalar_subquery()
    return case((exists(select(limited().c.maximum_live)), places), else_=WANTED)


def take(free_slots: CTE, claimed: CTE) -> CTE:
    """Let the claimed runs, which have positions, take the places in their order."""
    numbered = select(free_slots, func.row_number().over(order_by=free_slots.c.slot).label(POSITION)).subquery(
        "numbered_places"
    )
    return (
        update(tenant_slots)
        .values(
            {
                tenant_slots.c.run_id: claimed.c.run_id,
                tenant_slots.c.fencing_epoch: claimed.c.fencing_epoch,
                tenant_slots.c.serial: tenant_slots.c.serial + 1,
            }
        )
        .where(
            tenant_slots.c.tenant_id == numbered.c.tenant_id,
            tenant_slots.c.slot == numbered.c.slot,
            numbered.c[POSITION] == claimed.c[POSITION],
        )
        .returning(tenant_slots.c.slot)
        .cte("taken_places")
    )


def pass_on(claimed: CTE) -> CTE:
    """Give the place of the epoch before, if it has one, to the epoch that superseded it."""
    return (
        update(tenant_slots)
        .values(
            {tenant_slots.c.fencing_epoch: claimed.c.fencing_epoch, tenant_slots.c.serial: tenant_slots.c.serial + 1}
        )
        .where(
            tenant_slots.c.tenant_id == claimed.c.tenant_id,
            tenant_slots.c.run_id == claimed.c.run_id,
            tenant_slots.c.fencing_epoch == claimed.c.fencing_epoch - 1,
        )
        .returning(tenant_slots.c.slot)
        .cte("passed_places")
    )


# --- beside claims ---------------------------------------------------------------------------------------------------


def has_room(tenant_id: ColumnElement[Any], now: ColumnElement[Any]) -> ColumnElement[bool]:
    """Hold of a tenant without a limit, or with a place whose claim holds no live lease; nothing is locked."""
    limit = and_(tenant_limits.c.tenant_id == tenant_id, tenant_limits.c.maximum_live.is_not(None))
    is_held = exists(select(runs.c.run_id).where(_HOLDER, runs.c.lease_expires_at > now))
    place = (
        select(tenant_slots.c.slot)
        .join_from(tenant_limits, tenant_slots, tenant_slots.c.tenant_id == tenant_limits.c.tenant_id)
        .where(limit, tenant_slots.c.slot < tenant_limits.c.maximum_live, ~is_held)
    )
    return or_(~exists(select(tenant_limits.c.tenant_id).where(limit)), exists(place))


@cache
def set_limit() -> Select[Any]:
    """Set the limit of a tenant, or none, and make the places that it lacks; places are never removed."""
    maximum = bindparam("maximum", type_=SmallInteger())
    tenant_id = bindparam("of_tenant", type_=Text())
    statement = insert(tenant_limits).values(
        {
            tenant_limits.c.tenant_id: tenant_id,
            tenant_limits.c.maximum_live: maximum,
            tenant_limits.c.updated_at: func.clock_timestamp(),
        }
    )
    changed = (
        statement.on_conflict_do_update(
            index_elements=[tenant_limits.c.tenant_id],
            set_={
                "maximum_live": statement.excluded.maximum_live,
                "updated_at": statement.excluded.updated_at,
            },
        )
        .returning(tenant_limits.c.maximum_live)
        .cte("changed")
    )
    numbers = func.generate_series(0, changed.c.maximum_live - 1).table_valued("slot", name="numbers").render_derived()
    places = insert(tenant_slots).from_select(
        ["tenant_id", "slot", "serial"],
        select(tenant_id, cast(numbers.c.slot, SmallInteger()), literal_column("0")).join_from(
            changed, numbers, true()
        ),
    )
    return select(changed.c.maximum_live).add_cte(places.on_conflict_do_nothing().cte("places"))


@cache
def limit_of() -> Select[Any]:
    """Read the limit of a tenant; no row when it has none."""
    return select(limited().c.maximum_live)
