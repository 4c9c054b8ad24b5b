"""Read what a reading at full depth needs beside the windows of the fold, in pages by ranges of primary keys."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Select, Table, Text, Uuid, and_, bindparam, select

from agentruns.store.tables import events, quarantine_releases, quarantines, waits

_TENANT: Final = bindparam("tenant_id", type_=Text())
_RUN: Final = bindparam("run_id", type_=Uuid(as_uuid=False))
_LIMIT: Final = bindparam("limit", type_=BigInteger())
_AFTER_ID: Final = bindparam("after_id", type_=Uuid(as_uuid=False))

EVENT_COLUMNS: Final = ("sequence", "event_id", "recorded_at", "epoch", "kind", "schema_digest", "data", "digest")
_ISOLATION: Final = ("quarantine_id", "quarantined_at", "cause_kind", "component", "body", "digest", "epoch")


def _of_run(table: Table) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == _TENANT, table.c.run_id == _RUN)


@cache
def read_events() -> Select[Any]:
    """Read a page of the journal."""
    after = bindparam("after_sequence", type_=BigInteger())
    until = bindparam("until_sequence", type_=BigInteger())
    return (
        select(*(events.c[name] for name in EVENT_COLUMNS))
        .where(_of_run(events), events.c.sequence > after, events.c.sequence <= until)
        .order_by(events.c.sequence)
        .limit(_LIMIT)
    )


@cache
def read_waits() -> Select[Any]:
    """Read a page of waits without their bodies, each beside the event that is said to have settled it."""
    settling = events.alias("settling")
    is_settling = and_(
        settling.c.tenant_id == waits.c.tenant_id,
        settling.c.run_id == waits.c.run_id,
        settling.c.sequence == waits.c.settled_sequence,
    )
    return (
        select(
            waits.c.wait_id,
            waits.c.sequence,
            waits.c.status,
            waits.c.settled_sequence,
            waits.c.resolution_digest,
            settling.c.kind,
            settling.c.schema_digest,
            settling.c.data,
        )
        .join_from(waits, settling, is_settling, isouter=True)
        .where(_of_run(waits), waits.c.wait_id > _AFTER_ID)
        .order_by(waits.c.wait_id)
        .limit(_LIMIT)
    )


@cache
def read_isolations() -> Select[Any]:
    """Read every quarantine and every release of a run; there are as many as people have looked at it."""
    isolated = select(*(quarantines.c[name] for name in _ISOLATION)).where(_of_run(quarantines)).subquery("isolated")
    names = ("quarantine_id", "released_at", "body", "digest")
    released = select(*(quarantine_releases.c[name] for name in names)).where(_of_run(quarantine_releases))
    answer = released.subquery("released")
    is_answered = answer.c.quarantine_id == isolated.c.quarantine_id
    return select(*isolated.c, *(answer.c[name].label(f"release_{name}") for name in names[1:])).join_from(
        isolated, answer, is_answered, full=True
    )
