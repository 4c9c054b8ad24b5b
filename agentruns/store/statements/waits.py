"""Read waits by id, each with what settled it."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Select, and_, select

from agentruns.store.sets import POSITION, RUN, ItemSet, columns_of
from agentruns.store.statements.ends import EVENT_COLUMNS
from agentruns.store.tables import events, waits

ITEMS: Final = ItemSet("item", RUN | columns_of(waits.c.wait_id))
WAIT_COLUMNS: Final = (
    "wait_id",
    "kind",
    "registration",
    "digest",
    "sequence",
    "status",
    "settled_sequence",
    "resolution",
    "resolution_digest",
)


@cache
def find_waits() -> Select[Any]:
    """Read waits with the event that settled each, and the digest that this event is chained to."""
    item = ITEMS.source()
    event, previous = events.alias("event"), events.alias("previous")
    return (
        select(
            item.c[POSITION],
            *(waits.c[name].label(f"wait_{name}") for name in WAIT_COLUMNS),
            *(event.c[name].label(f"event_{name}") for name in EVENT_COLUMNS),
            previous.c.digest.label("event_previous"),
        )
        .select_from(
            item.join(waits, _same_run(waits, item, waits.c.wait_id == item.c.wait_id))
            .outerjoin(event, _same_run(event, waits, event.c.sequence == waits.c.settled_sequence))
            .outerjoin(previous, _same_run(previous, event, previous.c.sequence == event.c.sequence - 1))
        )
        .order_by(item.c[POSITION])
    )


def _same_run(one: FromClause, other: FromClause, *more: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(one.c.tenant_id == other.c.tenant_id, one.c.run_id == other.c.run_id, *more)
