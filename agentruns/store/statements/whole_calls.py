"""Read the calls of a run with their bodies, each row beside the event that it was committed with, in pages."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    Table,
    Text,
    Uuid,
    and_,
    bindparam,
    func,
    null,
    select,
    tuple_,
)

from agentruns.store.tables import events, model_call_changes, model_calls, tool_call_changes, tool_calls

#: A page ends before the bodies in it grow larger, unless it is one row.
PAGE_BYTES: Final = 8 * 1024 * 1024

#: The tables of each kind of call: its place, and the changes of its place.
TABLES: Final[dict[str, tuple[Table, Table]]] = {
    "model": (model_calls, model_call_changes),
    "tool": (tool_calls, tool_call_changes),
}

_TENANT: Final = bindparam("tenant_id", type_=Text())
_RUN: Final = bindparam("run_id", type_=Uuid(as_uuid=False))
_AFTER_ID: Final = bindparam("after_id", type_=Uuid(as_uuid=False))
_LIMIT: Final = bindparam("limit", type_=BigInteger())


@cache
def read_changes(kind: str) -> Select[Any]:
    """Read a page of the changes of calls, by call and number."""
    changes = TABLES[kind][1]
    after = tuple_(_AFTER_ID, bindparam("after_number", type_=BigInteger()))
    key = tuple_(changes.c.invocation_id, changes.c.number)
    names = ("invocation_id", "number", "status", "attempt_id", "body", "digest", "sequence")
    return _page(
        select(*(changes.c[name] for name in names), *_event_columns())
        .join_from(changes, events, _is_event_of(changes), isouter=True)
        .where(_of_run(changes), key > after)
        .order_by(changes.c.invocation_id, changes.c.number),
        "body",
    )


@cache
def read_calls(kind: str) -> Select[Any]:
    """Read a page of calls, each beside its preparation and beside the status of its last change."""
    calls, changes = TABLES[kind]
    prepared, last = changes.alias("prepared"), changes.alias("last")
    highest = select(func.max(changes.c.number)).where(_of_call(changes, calls)).scalar_subquery()
    columns = [calls.c[name] for name in ("invocation_id", "superstep", "node_id", "intent", "status", "number")]
    risk = calls.c.risk if "risk" in calls.c else null().cast(Text())
    return _page(
        select(
            *columns,
            risk.label("risk"),
            prepared.c.sequence,
            last.c.number.label("last_number"),
            last.c.status.label("last_status"),
            *_event_columns(),
        )
        .join_from(calls, prepared, and_(_of_call(prepared, calls), prepared.c.number == 0), isouter=True)
        .join(last, and_(_of_call(last, calls), last.c.number == highest), isouter=True)
        .join(events, _is_event_of(prepared), isouter=True)
        .where(_of_run(calls), calls.c.invocation_id > _AFTER_ID)
        .order_by(calls.c.invocation_id),
        "intent",
    )


def _page(rows: Select[Any], body: str) -> Select[Any]:
    """Cut where the rows, or the bytes of their bodies, become too many; the first row is always in.

    A stored length is read off the pointer, so no body beyond the cut is fetched.
    """
    page = rows.limit(_LIMIT).subquery("page")
    order = (page.c.invocation_id, page.c.number)
    size = func.coalesce(func.octet_length(page.c[body]), 0)
    total, place = func.sum(size).over(order_by=order), func.row_number().over(order_by=order)
    cut = select(page, total.label("page_bytes"), place.label("place")).subquery("cut")
    fits = (cut.c.page_bytes <= PAGE_BYTES) | (cut.c.place == 1)
    return select(*(cut.c[column.key] for column in page.c)).where(fits).order_by(cut.c.place)


def _event_columns() -> list[ColumnElement[Any]]:
    return [events.c[name].label(f"event_{name}") for name in ("kind", "schema_digest", "data")]


def _is_event_of(row: FromClause) -> ColumnElement[bool]:
    return and_(
        events.c.tenant_id == row.c.tenant_id, events.c.run_id == row.c.run_id, events.c.sequence == row.c.sequence
    )


def _of_call(change: FromClause, call: Table) -> ColumnElement[bool]:
    names = ("tenant_id", "run_id", "invocation_id")
    return and_(*(change.c[name] == call.c[name] for name in names))


def _of_run(table: Table) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == _TENANT, table.c.run_id == _RUN)
