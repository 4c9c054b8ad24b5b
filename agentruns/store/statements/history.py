"""Read the evidence of a run in one statement: the run row, the clock, and its history as one uniform row set.

One statement is one snapshot at every isolation level. The rows of a fact stand beside its event, found by ranges of
primary keys; no other index is needed, and no cursor or offset.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from attrs import frozen
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    DateTime,
    FromClause,
    Select,
    SmallInteger,
    Table,
    Text,
    Uuid,
    and_,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal,
    null,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA
from sqlalchemy.sql.selectable import LateralFromClause
from sqlalchemy.types import TypeEngine

from agentruns.store.sets import PlainArray, materialized
from agentruns.store.statements.history_bounds import ALL, GIVEN, Bounds, of_run
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


@frozen
class _Parts:
    """Bring the tables of one run's history into the uniform form."""

    run: FromClause
    bounds: Bounds

    def all(self) -> list[Select[Any]]:
        return [
            self._rows(
                "event",
                events,
                self.bounds.holds(events.c.sequence),
                id=events.c.event_id,
                word=events.c.kind,
                number=events.c.epoch,
                at=events.c.recorded_at,
                digest=events.c.digest,
                body=events.c.data,
                second_digest=events.c.schema_digest,
            ),
            self._rows(
                "checkpoint",
                checkpoints,
                self.bounds.holds_checkpoint(checkpoints),
                superstep=checkpoints.c.superstep,
                id=checkpoints.c.checkpoint_id,
                digest=checkpoints.c.digest,
                body=checkpoints.c.state,
                second_body=checkpoints.c.ready,
            ),
            self._rows(
                "attempt", attempts, self.bounds.holds_row(attempts), **_node(attempts), id=attempts.c.attempt_id
            ),
            self._rows(
                "result",
                results,
                self.bounds.holds_row(results),
                **_node(results),
                status=results.c.status,
                at=results.c.retry_not_before,
                digest=results.c.digest,
                body=results.c.body,
            ),
            self._waits(),
            self._rows(
                "outcome",
                outcomes,
                self.bounds.holds(outcomes.c.sequence),
                word=outcomes.c.kind,
                digest=outcomes.c.digest,
                body=outcomes.c.body,
            ),
            self._rows(
                "admission",
                admissions,
                admissions.c.sequence > self.bounds.after,
                word=admissions.c.agent_name,
                node_id=admissions.c.agent_version,
                digest=admissions.c.admission_digest,
                body=admissions.c.body,
            ),
        ]

    def _waits(self) -> Select[Any]:
        """Bring a wait with the event that registered it and with the one that settled it, and while it is outstanding.

        Each body comes once, with its event.
        """
        is_new, is_settled = self.bounds.holds(waits.c.sequence), self.bounds.holds(waits.c.settled_sequence)
        return self._rows(
            "wait",
            waits,
            or_(is_new, is_settled, waits.c.status == "outstanding"),
            id=waits.c.wait_id,
            word=waits.c.kind,
            status=waits.c.status,
            number=waits.c.settled_sequence,
            at=waits.c.due_at,
            until=waits.c.expires_at,
            digest=waits.c.digest,
            body=case((is_new, waits.c.registration)),
            second_digest=waits.c.resolution_digest,
            second_body=case((is_settled, waits.c.resolution)),
        )

    def _rows(
        self, source: str, table: Table, *conditions: ColumnElement[bool], **columns: ColumnElement[Any]
    ) -> Select[Any]:
        given: dict[str, ColumnElement[Any]] = {"source": literal(source), "sequence": table.c.sequence, **columns}
        members = [cast(given.get(name, null()), type_).label(name) for name, type_ in _COLUMNS.items()]
        is_of_run = and_(table.c.tenant_id == self.run.c.tenant_id, table.c.run_id == self.run.c.run_id)
        return select(*members).where(is_of_run, *conditions).correlate(self.run)

    def byte_count(self) -> ColumnElement[Any]:
        """Add up bodies; a stored length is read off the pointer, so no body is fetched for it.

        An admission, an outcome and a request come once in a run and are not counted.
        """
        bounds = self.bounds
        sums = [
            select(func.coalesce(func.sum(func.octet_length(body)), 0))
            .where(table.c.tenant_id == self.run.c.tenant_id, table.c.run_id == self.run.c.run_id, within)
            .correlate(self.run)
            .scalar_subquery()
            for table, body, within in (
                (events, events.c.data, bounds.holds(events.c.sequence)),
                (checkpoints, checkpoints.c.state, bounds.holds_checkpoint(checkpoints)),
                (results, results.c.body, bounds.holds_row(results)),
                (waits, waits.c.registration, bounds.holds(waits.c.sequence)),
                (waits, waits.c.resolution, bounds.holds(waits.c.settled_sequence)),
            )
        ]
        return cast(sum(sums[1:], start=sums[0]), BigInteger)


def _node(table: Table) -> dict[str, ColumnElement[Any]]:
    return {name: table.c[name] for name in ("superstep", "node_id", "attempt")}


def gathered(run: FromClause, fits: ColumnElement[bool], bounds: Bounds = ALL) -> LateralFromClause:
    """Gather the history of a run as one array for each column of the uniform row; nothing where it does not fit.

    Args:
        run: names the run by ``tenant_id`` and ``run_id``.
        fits: decides over columns of ``run`` whether the history is read at all.
        bounds: of what is wanted; by default all.
    """
    history = union_all(*_Parts(run, bounds).all()).subquery("history")
    arrays = [_as_array(column).label(f"history_{column.key}") for column in history.c]
    return select(*arrays).where(fits).correlate(run).lateral("gathered")


def _as_array(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Aggregate a column to an array as it is to be read: a ``uuid`` as its text, and no value looked at again."""
    value = cast(column, Text()) if isinstance(column.type, Uuid) else column
    return func.array_agg(value, type_=PlainArray(value.type))


def byte_count(run: FromClause, bounds: Bounds = ALL) -> ColumnElement[Any]:
    """Add up the bodies of a run's history."""
    return _Parts(run, bounds).byte_count()


@cache
def read_history() -> Select[Any]:
    """Read a window of a run's history beside the run row; above the bounds given, the run row and the sums alone."""
    run = materialized(select(runs, func.clock_timestamp().label("now")).where(of_run(runs)), "run")
    counted = (
        select(func.count())
        .where(
            events.c.tenant_id == run.c.tenant_id,
            events.c.run_id == run.c.run_id,
            GIVEN.holds(events.c.sequence),
        )
        .correlate(run)
        .scalar_subquery()
    )
    sums = materialized(select(run, counted.label("event_count"), byte_count(run, GIVEN).label("byte_count")), "summed")
    fits = and_(
        sums.c.event_count <= bindparam("maximum_events", type_=BigInteger()),
        sums.c.byte_count <= bindparam("maximum_bytes", type_=BigInteger()),
    )
    history = gathered(sums, fits, GIVEN)
    return select(sums, *history.c).select_from(sums.join(history, true()))


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
        of_run(events),
        events.c.sequence > GIVEN.after,
        events.c.event_id == any_(bindparam("event_ids", type_=ARRAY(Uuid(as_uuid=False)))),
    )
