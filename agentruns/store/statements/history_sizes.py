"""Say how large parts of a history are before any of it is read: sums of stored lengths, so no body is fetched."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Select,
    and_,
    bindparam,
    case,
    cast,
    func,
    or_,
    select,
    true,
)

from agentruns.store.sets import materialized
from agentruns.store.statements.history_bounds import of_run
from agentruns.store.tables import checkpoints, events, results, waits

_AFTER: Final = bindparam("after_sequence", type_=BigInteger())
_UNTIL: Final = bindparam("until_sequence", type_=BigInteger())
_SUPERSTEP: Final = bindparam("superstep", type_=BigInteger())
_LIMIT: Final = bindparam("limit", type_=BigInteger())


def _length(body: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.coalesce(func.octet_length(body), 0)


def _total(body: ColumnElement[Any], *conditions: ColumnElement[bool]) -> ColumnElement[Any]:
    length = func.sum(func.octet_length(body))
    return func.coalesce(length.filter(*conditions) if conditions else length, 0)


def _begun() -> Select[Any]:
    """List checkpoints from a superstep on, up to an event, each beside the one that follows; one more than wanted."""
    found = (
        select(checkpoints.c.superstep, checkpoints.c.sequence, func.octet_length(checkpoints.c.state).label("size"))
        .where(of_run(checkpoints), checkpoints.c.superstep >= _SUPERSTEP, checkpoints.c.sequence <= _UNTIL)
        .order_by(checkpoints.c.superstep)
        .limit(_LIMIT + 1)
        .subquery("found")
    )
    return select(
        found.c.superstep,
        found.c.sequence,
        func.row_number().over(order_by=found.c.superstep).label("number"),
        func.lead(found.c.sequence).over(order_by=found.c.superstep).label("next_sequence"),
        func.lead(found.c.size).over(order_by=found.c.superstep).label("next_size"),
        # The first of all has its own checkpoint among its events.
        case((found.c.superstep == 0, found.c.size), else_=0).label("own_size"),
    )


def _events_of(step: FromClause) -> Any:
    begins = case((step.c.superstep == 0, 0), else_=step.c.sequence)
    ends = func.coalesce(step.c.next_sequence, _UNTIL)
    return (
        select(func.count().label("event_count"), _total(events.c.data).label("size"))
        .where(of_run(events), events.c.sequence > func.greatest(begins, _AFTER), events.c.sequence <= ends)
        .correlate(step)
        .lateral("of_events")
    )


def _results_of(step: FromClause) -> Any:
    is_result = results.c.status == "succeeded"
    return (
        select(
            _total(results.c.body, results.c.sequence > _AFTER).label("size"),
            _total(results.c.body, is_result).label("result_bytes"),
        )
        .where(of_run(results), results.c.superstep == step.c.superstep)
        .correlate(step)
        .lateral("of_results")
    )


@cache
def read_superstep_sizes() -> Select[Any]:
    """Measure supersteps: where the events of each end, how many there are, and what they and their bodies weigh.

    Bodies of waits are not among them; the statement that reads a part adds them up for itself.
    """
    step = materialized(_begun(), "step")
    of_events, of_results = _events_of(step), _results_of(step)
    size = of_events.c.size + of_results.c.size + func.coalesce(step.c.next_size, 0) + step.c.own_size
    return (
        select(
            step.c.superstep,
            step.c.next_sequence,
            of_events.c.event_count,
            cast(of_results.c.result_bytes, BigInteger).label("result_bytes"),
            cast(size, BigInteger).label("byte_count"),
        )
        .select_from(step.join(of_events, true()).join(of_results, true()))
        .where(step.c.number <= _LIMIT)
        .order_by(step.c.superstep)
    )


def _waits_of(event: FromClause) -> Any:
    """Add up what waits brought with an event: their registrations, or their resolutions."""
    registered = case((waits.c.sequence == event.c.sequence, _length(waits.c.registration)), else_=0)
    resolved = case((waits.c.settled_sequence == event.c.sequence, _length(waits.c.resolution)), else_=0)
    at_event = or_(waits.c.sequence == event.c.sequence, waits.c.settled_sequence == event.c.sequence)
    return (
        select(func.coalesce(func.sum(registered + resolved), 0).label("size"))
        .where(of_run(waits), at_event)
        .correlate(event)
        .lateral("of_waits")
    )


@cache
def read_event_sizes() -> Select[Any]:
    """Measure the next events of one superstep, each with the bodies that it was written with."""
    event = materialized(
        select(events.c.sequence, func.octet_length(events.c.data).label("size"))
        .where(of_run(events), events.c.sequence > _AFTER, events.c.sequence <= _UNTIL)
        .order_by(events.c.sequence)
        .limit(_LIMIT),
        "event",
    )
    in_step = and_(of_run(results), results.c.superstep == _SUPERSTEP, results.c.sequence == event.c.sequence)
    made = and_(
        of_run(checkpoints), checkpoints.c.superstep == _SUPERSTEP + 1, checkpoints.c.sequence == event.c.sequence
    )
    of_waits = _waits_of(event)
    size = event.c.size + _length(results.c.body) + _length(checkpoints.c.state) + of_waits.c.size
    joined = event.outerjoin(results, in_step).outerjoin(checkpoints, made).join(of_waits, true())
    return (
        select(event.c.sequence, cast(size, BigInteger).label("byte_count"))
        .select_from(joined)
        .order_by(event.c.sequence)
    )
