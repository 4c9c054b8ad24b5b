"""Find what retention may remove, by the database's clock; and read what it has removed."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal, TypeAlias

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Interval,
    Select,
    Text,
    TextClause,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    select,
    text,
    tuple_,
)
from sqlalchemy.sql.elements import ColumnElement

from agentruns.domain.status import RunStatus
from agentruns.orm import SCHEMA_TOKEN, Base
from agentruns.store.sets import materialized
from agentruns.store.tables import runs

#: Why a run may go: it has ended, or it has been isolated, whatever its status.
Cause: TypeAlias = Literal["ended", "isolated"]

#: Statuses of runs that have ended.
ENDED: Final = tuple(status.value for status in RunStatus if status.is_terminal)
#: How many places are read at once when nothing is removed.
PAGE: Final = 10_000

deliveries: Final = Base.metadata.tables[f"{SCHEMA_TOKEN}.outbox_deliveries"]
receipts: Final = Base.metadata.tables[f"{SCHEMA_TOKEN}.retention_receipts"]

#: Durations cross as numbers: days of an interval would be as long as those of the session's time zone.
_MICROSECOND: Final = literal_column("interval '1 microsecond'", Interval())
_SINCE: Final = {"ended": runs.c.changed_at, "isolated": runs.c.quarantined_at}

clock: Final = materialized(select(func.clock_timestamp().label("now")), "clock")
now: Final = select(clock.c.now).scalar_subquery()
tenant_id: Final = bindparam("tenant_id", type_=Text())


def before(keep: str) -> ColumnElement[Any]:
    """Give the instant that lies a bound number of microseconds back."""
    return now - bindparam(keep, type_=BigInteger()) * _MICROSECOND


def due(cause: Cause, *, limit: int) -> Select[Any]:
    """Select runs that may go, longest over first, of a window of the index that is ordered so.

    The limit and the statuses stand in the text: a plan that is made once must know that few rows come, and that the
    partial index holds them.
    """
    since = _SINCE[cause]
    place = tuple_(since, runs.c.run_id)
    is_open = exists(
        select(1).where(
            deliveries.c.tenant_id == runs.c.tenant_id,
            deliveries.c.run_id == runs.c.run_id,
            deliveries.c.next_attempt_at.is_not(None),
        )
    )
    return (
        select(runs.c.tenant_id, runs.c.run_id, since.label("since"), runs.c.status, runs.c.head_sequence)
        .where(
            runs.c.tenant_id == tenant_id,
            place > _place("after"),
            place <= _place("until"),
            since < before("keep"),
            *(_ended() if cause == "ended" else [runs.c.quarantined_at.is_not(None)]),
            ~is_open,
        )
        .order_by(since, runs.c.run_id)
        .limit(literal_column(str(limit)))
    )


def _ended() -> list[ColumnElement[bool]]:
    statuses: BindParameter[Any] = bindparam("ended", ENDED, expanding=True, literal_execute=True)
    kept_until = case({status: before(f"keep_{status}") for status in ENDED}, value=runs.c.status)
    return [runs.c.status.in_(statuses), runs.c.quarantined_at.is_(None), runs.c.changed_at < kept_until]


def _place(name: str) -> ColumnElement[Any]:
    since = bindparam(f"{name}_since", type_=runs.c.changed_at.type)
    return tuple_(since, bindparam(f"{name}_run_id", type_=runs.c.run_id.type))


@cache
def places(cause: Cause) -> Select[Any]:
    """Read what may go, locking nothing."""
    return due(cause, limit=PAGE)


@cache
def read_clock() -> Select[Any]:
    """Read the clock that the conditions go by."""
    return select(clock.c.now)


@cache
def next_tenant() -> Select[Any]:
    """Find the tenant that follows another one and has runs."""
    return select(runs.c.tenant_id).where(runs.c.tenant_id > tenant_id).order_by(runs.c.tenant_id).limit(1)


@cache
def tables_of_runs() -> TextClause:
    """Name the append-only tables of a schema that carry a run's key, as the catalogue has them."""
    return text("""
        SELECT c.relname::text FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = :schema)
          AND EXISTS (SELECT FROM pg_catalog.pg_trigger WHERE tgrelid = c.oid AND tgname = 'append_only')
          AND EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attname = 'run_id')
    """)


@cache
def receipts_after() -> Select[Any]:
    """Read a page of a tenant's receipts, in the order of their ids, which is about that of their instants."""
    after = bindparam("after", type_=receipts.c.receipt_id.type)
    return (
        select(*receipts.c)
        .where(receipts.c.tenant_id == tenant_id, receipts.c.receipt_id > after)
        .order_by(receipts.c.receipt_id)
        .limit(literal_column(str(PAGE)))
    )
