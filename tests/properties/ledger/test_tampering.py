"""LED-2: whatever is changed in events and bodies is found by the fold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve, fields
from hypothesis import given, settings
from hypothesis import strategies as st

from agentruns.domain.digests import Digest
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.ledger.bodies import BodyRow
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import JournalSequence
from agentruns.domain.scalars import JournalEventKind, TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import CorruptDataError
from agentruns.testing.histories import History
from agentruns.testing.strategies.histories import histories


@given(histories(steps=25), st.data())
@settings(max_examples=60)
def test_LED_02_every_change_of_one_event_is_found(history: History, data: st.DataObject) -> None:
    """Whatever column of whatever event is changed, the fold finds it there or at the next event."""
    events = list(history.stored_events)
    place = data.draw(st.integers(0, len(events) - 1))
    name = data.draw(st.sampled_from([each.name for each in fields(Event)]))
    events[place] = evolve(events[place], **{name: other(getattr(events[place], name))})
    with pytest.raises(CorruptDataError) as caught:
        fold(history, events, history.bodies)
    assert caught.value.component in {"chain", "kind"}
    assert caught.value.run_id == history.state.run_id


@given(histories(steps=25), st.data())
@settings(max_examples=60)
def test_LED_02_an_event_that_is_missing_repeated_or_swapped_is_found(history: History, data: st.DataObject) -> None:
    events = list(history.stored_events)
    place = data.draw(st.integers(0, len(events) - 1))
    changes = [events[:place] + events[place + 1 :], events[: place + 1] + events[place:]]
    if place:
        changes.append([*events[: place - 1], events[place], events[place - 1], *events[place + 1 :]])
    for changed in changes:
        if changed == events[: len(changed)]:
            continue
        with pytest.raises(CorruptDataError, match=r"chain|order"):
            fold(history, changed, history.bodies)


@given(histories(steps=25), st.data())
@settings(max_examples=60)
def test_LED_02_a_flipped_byte_or_a_missing_row_of_a_body_is_found(history: History, data: st.DataObject) -> None:
    bodies = history.bodies
    digest = data.draw(st.sampled_from(sorted(bodies)))
    row = bodies[digest]
    place = data.draw(st.integers(0, len(row.data) - 1))
    flipped = row.data[:place] + bytes([row.data[place] ^ 1]) + row.data[place + 1 :]
    with pytest.raises(CorruptDataError):
        fold(history, history.stored_events, {**bodies, digest: evolve(row, data=flipped)})
    with pytest.raises(CorruptDataError) as caught:
        fold(history, history.stored_events, {each: row for each, row in bodies.items() if each != digest})
    assert (caught.value.component, caught.value.reason) == ("body", "missing_artifact")


@given(histories(steps=25))
@settings(max_examples=40)
def test_a_checkpoint_of_another_id_is_found(history: History) -> None:
    bodies = history.bodies
    for digest, row in bodies.items():
        if row.checkpoint_id is None:
            continue
        for changed in (
            evolve(row, checkpoint_id=None),
            evolve(row, checkpoint_id=history.mint(type(row.checkpoint_id))),
        ):
            with pytest.raises(CorruptDataError):
                fold(history, history.stored_events, {**bodies, digest: changed})


def fold(history: History, events: Any, bodies: dict[Digest, BodyRow]) -> RunState:
    state = RunState.empty(history.state.tenant_id, history.state.run_id)
    for event in events:
        state = state.apply(event, bodies, history.graph)
    return state


def other(value: Any) -> Any:
    """Give another value of the same type."""
    return OTHERS[type(value)](value)


OTHERS: dict[type, Callable[[Any], Any]] = {
    TenantId: lambda _: TenantId("tenant-b"),
    RunId: lambda value: RunId(value.text[:-1] + ("0" if value.text[-1] != "0" else "1")),
    EventId: lambda value: EventId(value.text[:-1] + ("0" if value.text[-1] != "0" else "1")),
    JournalSequence: lambda value: value.next(),
    Digest: lambda value: Digest(bytes([value.raw[0] ^ 1]) + value.raw[1:]),
    JournalEventKind: lambda value: JournalEventKind("graph-timer-fired" if "timer" not in value.text else "x"),
    bytes: lambda value: value[:-2] + b'x"' + value[-1:],
    int: lambda value: value + 1,
    Timestamp: lambda value: value.plus_micros(1),
}
