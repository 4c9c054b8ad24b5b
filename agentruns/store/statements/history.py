"""Read the evidence of a run in one statement: the run row, the clock, and its history as one uniform row set.

One statement is one snapshot at every isolation level. The rows of a fact stand beside its event, found by ranges of
primary keys; no other index is needed, and no cursor or offset.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    DateTime,
    Select,
    SmallInteger,
    Table,
    Text,
    Uuid,
    and_,
    any_,
    bindparam,
    cast,
    func,
    literal,
    null,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA
from sqlalchemy.types import TypeEngine

from agentruns.store.sets import materialized
from agentruns.store.tables import admissions, attempts, checkpoints, events, outcomes, results, runs, waits

#: Of a run with more than this, the first statement brings the run row and the sums alone.
SHORT_EVENTS: Final = 512
SHORT_BYTES: Final = 8 * 1024 * 1024

#: The uniform row: what a table does not have is null.
_COLUMNS: Final[dict[str, TypeEngine[Any]]] = {
    "source": Text(),
    "sequence": BigInteger(),
    "superstep": BigInteger(),
    "node_id": Text(),
    "attempt": SmallInteger(),
    "id": Uuid(as_uuid=False),
    "word": Text(),
    "status": Text(),
    "number": BigInteger(),
    "at": DateTime(timezone=True),
    "until": DateTime(timezone=True),
    "digest": BYTEA(),
    "body": BYTEA(),
    "second_digest": BYTEA(),
    "second_body": BYTEA(),
}

_TENANT: Final = bindparam("tenant_id", type_=Text())
_RUN: Final = bindparam("run_id", type_=Uuid(as_uuid=False))
#: Events after this sequence, up to and with the next one.
_AFTER: Final = bindparam("after_sequence", type_=BigInteger())
_UNTIL: Final = bindparam("until_sequence", type_=BigInteger())
#: Supersteps from this one, up to and with the next one.
_FIRST: Final = bindparam("first_superstep", type_=BigInteger())
_LAST: Final = bindparam("last_superstep", type_=BigInteger())


def _of_run(table: Table) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == _TENANT, table.c.run_id == _RUN)


def _rows(source: str, table: Table, *conditions: ColumnElement[bool], **columns: ColumnElement[Any]) -> Select[Any]:
    """Bring a table's rows into the uniform form."""
    given: dict[str, ColumnElement[Any]] = {"source": literal(source), "sequence": table.c.sequence, **columns}
    members = [cast(given.get(name, null()), type_).label(name) for name, type_ in _COLUMNS.items()]
    return select(*members).where(_of_run(table), *conditions)


def _node(table: Table) -> dict[str, ColumnElement[Any]]:
    return {name: table.c[name] for name in ("superstep", "node_id", "attempt")}


def _parts() -> list[Select[Any]]:
    in_events = events.c.sequence.between(_AFTER + 1, _UNTIL)
    in_steps = {table.name: table.c.superstep.between(_FIRST, _LAST) for table in (checkpoints, attempts, results)}
    return [
        _rows(
            "event",
            events,
            in_events,
            id=events.c.event_id,
            word=events.c.kind,
            number=events.c.epoch,
            at=events.c.recorded_at,
            digest=events.c.digest,
            body=events.c.data,
            second_digest=events.c.schema_digest,
        ),
        _rows(
            "checkpoint",
            checkpoints,
            in_steps[checkpoints.name],
            superstep=checkpoints.c.superstep,
            id=checkpoints.c.checkpoint_id,
            digest=checkpoints.c.digest,
            body=checkpoints.c.state,
            second_body=checkpoints.c.ready,
        ),
        _rows(
            "attempt",
            attempts,
            in_steps[attempts.name],
            **_node(attempts),
            id=attempts.c.attempt_id,
        ),
        _rows(
            "result",
            results,
            in_steps[results.name],
            **_node(results),
            status=results.c.status,
            at=results.c.retry_not_before,
            digest=results.c.digest,
            body=results.c.body,
        ),
        _rows(
            "wait",
            waits,
            id=waits.c.wait_id,
            word=waits.c.kind,
            status=waits.c.status,
            number=waits.c.settled_sequence,
            at=waits.c.due_at,
            until=waits.c.expires_at,
            digest=waits.c.digest,
            body=waits.c.registration,
            second_digest=waits.c.resolution_digest,
            second_body=waits.c.resolution,
        ),
        _rows("outcome", outcomes, word=outcomes.c.kind, digest=outcomes.c.digest, body=outcomes.c.body),
        _rows(
            "admission",
            admissions,
            admissions.c.sequence > _AFTER,
            word=admissions.c.agent_name,
            node_id=admissions.c.agent_version,
            digest=admissions.c.admission_digest,
            body=admissions.c.body,
        ),
    ]


def _sums() -> CTE:
    """Add up what the window holds; a stored length is read off the pointer, so no body is fetched for it."""
    event_sums = select(
        func.count().label("event_count"), func.coalesce(func.sum(func.octet_length(events.c.data)), 0).label("bytes")
    ).where(_of_run(events), events.c.sequence.between(_AFTER + 1, _UNTIL))
    counted = event_sums.subquery("event_sums")
    bodies = [
        select(func.coalesce(func.sum(func.octet_length(body)), 0))
        .where(_of_run(table), table.c.superstep.between(_FIRST, _LAST))
        .scalar_subquery()
        for table, body in ((checkpoints, checkpoints.c.state), (results, results.c.body))
    ]
    total = counted.c.bytes + bodies[0] + bodies[1]
    return materialized(
        select(counted.c.event_count, cast(total, BigInteger).label("byte_count")).select_from(counted), "sums"
    )


@cache
def read_history() -> Select[Any]:
    """Read a window of a run's history beside the run row; above the bounds given, the run row and the sums alone."""
    run = select(runs, func.clock_timestamp().label("now")).where(_of_run(runs)).cte("run")
    sums = _sums()
    history = union_all(*_parts()).subquery("history")
    fits = and_(
        sums.c.event_count <= bindparam("maximum_events", type_=BigInteger()),
        sums.c.byte_count <= bindparam("maximum_bytes", type_=BigInteger()),
    )
    members = [column.label(f"history_{column.key}") for column in history.c]
    joined = run.join(sums, literal(value=True)).outerjoin(history, fits)
    return select(run, sums, *members).select_from(joined).order_by(history.c.sequence, history.c.source)


@cache
def read_supersteps() -> Select[Any]:
    """List where each superstep's events begin, so that a long history is cut between supersteps."""
    return (
        select(checkpoints.c.superstep, checkpoints.c.sequence)
        .where(_of_run(checkpoints), checkpoints.c.superstep >= _FIRST)
        .order_by(checkpoints.c.superstep)
        .limit(bindparam("limit", type_=BigInteger()))
    )


@cache
def find_events() -> Select[Any]:
    """Look for events by id after a sequence: where a retry's own events would stand."""
    return select(
        events.c.sequence,
        events.c.event_id,
        events.c.recorded_at,
        events.c.epoch,
        events.c.kind,
        events.c.data,
        func.clock_timestamp().label("now"),
    ).where(
        _of_run(events),
        events.c.sequence > _AFTER,
        events.c.event_id == any_(bindparam("event_ids", type_=ARRAY(Uuid(as_uuid=False)))),
    )
