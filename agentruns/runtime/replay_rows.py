"""Turn rows of a history into events and bodies, and hold every projected column against the fold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from attrs import define, field

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.digests import Digest
from agentruns.domain.ids import CheckpointId, EventId
from agentruns.domain.ledger.bodies import Bodies, BodyRow
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import JournalSequence
from agentruns.domain.scalars import JournalEventKind
from agentruns.errors import CorruptDataError, InvalidValueError
from agentruns.runtime.replay_expected import expected_rows, expected_settlements
from agentruns.store.journal import HistoryRow, RunHistory, Window
from agentruns.store.mapping import StoredValue, instant

#: Table of each source, for the component of a finding.
TABLES: Final = {
    "event": "run_events",
    "checkpoint": "run_checkpoints",
    "attempt": "node_attempts",
    "result": "node_results",
    "wait": "run_waits",
    "outcome": "run_outcomes",
    "admission": "agent_admissions",
}

#: What a column of the uniform row is called in its table, where the names differ.
_COLUMNS: Final = {
    ("checkpoint", "id"): "checkpoint_id",
    ("checkpoint", "second_body"): "ready",
    ("attempt", "id"): "attempt_id",
    ("result", "at"): "retry_not_before",
    ("wait", "word"): "kind",
    ("wait", "at"): "due_at",
    ("wait", "until"): "expires_at",
    ("wait", "second_digest"): "resolution_digest",
    ("admission", "digest"): "admission_digest",
    ("admission", "word"): "agent_name",
    ("admission", "node_id"): "agent_version",
}


@define
class EventRows:
    """What stands at one sequence: an event, if the record is whole, and the rows that were written with it.

    Attributes:
        settled: rows of waits that say that this event has settled them.
    """

    events: list[HistoryRow] = field(factory=list)
    beside: list[HistoryRow] = field(factory=list)
    settled: list[HistoryRow] = field(factory=list)


def rows_by_sequence(state: RunState, rows: Iterable[HistoryRow], window: Window) -> dict[int, EventRows]:
    """Group the rows of a window under the event that each was written with.

    Raises:
        CorruptDataError: a row of a superstep claims an event of another one.
    """
    groups: dict[int, EventRows] = defaultdict(EventRows)
    for row in rows:
        if window.holds(row.sequence):
            group = groups[row.sequence]
            (group.events if row.source == "event" else group.beside).append(row)
        elif row.superstep is not None:
            # What the supersteps at the ends of a window wrote outside of it is not among the rows.
            raise _odd_row(state, row.source)
        if row.source == "wait" and row.number is not None and window.holds(row.number):
            groups[row.number].settled.append(row)
    return groups


def bodies_of(state: RunState, rows: Iterable[HistoryRow], *, intent: AgentAdmissionIntent) -> Bodies:
    """Find each body under the digest that its row claims; the fold recomputes it.

    Raises:
        CorruptDataError: a row claims what is no digest, a checkpoint has what is no id, or two rows claim one digest
            for different bytes.
    """
    bodies: dict[Digest, BodyRow] = {}

    def put(digest: Digest, body: BodyRow) -> None:
        # Equal bodies share a digest, and a good one must not hide a damaged one.
        if bodies.setdefault(digest, body).data != body.data:
            raise _corrupt(state, "body")

    for row in rows:
        if row.source == "admission" and row.digest is not None:
            put(_digest_of(state, row), BodyRow(data=intent.canonical, record=intent))
            continue
        if row.source != "event" and row.digest is not None and row.body is not None:
            put(_digest_of(state, row), BodyRow(data=row.body, checkpoint_id=_checkpoint_id_of(state, row)))
        if row.source == "wait" and row.second_digest is not None and row.second_body is not None:
            put(_digest_of(state, row, "second_digest"), BodyRow(data=row.second_body))
    return bodies


def _digest_of(state: RunState, row: HistoryRow, name: str = "digest") -> Digest:
    with StoredValue(state.tenant_id, state.run_id, _component(row.source, name)):
        return Digest(getattr(row, name))


def _checkpoint_id_of(state: RunState, row: HistoryRow) -> CheckpointId | None:
    if row.source != "checkpoint" or row.id is None:
        return None
    with StoredValue(state.tenant_id, state.run_id, _component(row.source, "id")):
        return CheckpointId(row.id)


def event_of(state: RunState, rows: EventRows) -> Event:
    """Read the one event among the rows of a sequence."""
    if rows.settled and not rows.events:
        raise _corrupt(state, "run_waits.settled_sequence")
    if len(rows.events) != 1:
        raise _odd_row(state, (rows.events or rows.beside)[0].source)
    (row,) = rows.events
    try:
        return Event(
            tenant_id=state.tenant_id,
            run_id=state.run_id,
            sequence=JournalSequence(row.sequence),
            event_id=EventId(_given(row.id)),
            recorded_at=instant(_given(row.at)),
            epoch=_given(row.number),
            kind=JournalEventKind(_given(row.word)),
            schema_digest=Digest(_given(row.second_digest)),
            data=_given(row.body),
            digest=Digest(_given(row.digest)),
        )
    except (InvalidValueError, TypeError) as error:
        raise _corrupt(state, "run_events") from error


def intent_of(
    state: RunState, rows: Iterable[HistoryRow], decode: Callable[[bytes], AgentAdmissionIntent]
) -> AgentAdmissionIntent:
    """Read what was admitted; the fold holds its digest against the first event."""
    for row in rows:
        if row.source == "admission" and row.body is not None:
            try:
                return decode(row.body)
            except InvalidValueError:
                break
    raise _corrupt(state, "agent_admissions.body")


def check_row_set(
    before: RunState, event: Event, after: RunState, rows: Sequence[HistoryRow], intent: AgentAdmissionIntent
) -> None:
    """Hold the rows that were written beside an event against those that the fold says it wrote.

    Raises:
        CorruptDataError: a row is missing, is one too many, or a column is unlike the fold's.
    """
    expected = expected_rows(before, event, after, intent)
    found = {_key(row): row for row in rows}
    if len(found) != len(rows) or found.keys() != expected.keys():
        odd = next(iter(found.keys() ^ expected.keys()), ("event",))
        raise _odd_row(after, odd[0])
    for key, columns in expected.items():
        row = found[key]
        for name, value in columns.items():
            if getattr(row, name) != value:
                raise _corrupt(after, _component(key[0], name))


def check_settlements(event: Event, after: RunState, rows: Sequence[HistoryRow]) -> None:
    """Hold the waits that say that an event has settled them against those that it has.

    Raises:
        CorruptDataError: a wait names another event, or is settled otherwise than this one says.
    """
    expected = expected_settlements(event, after)
    if expected.keys() != {row.id for row in rows}:
        raise _corrupt(after, "run_waits.settled_sequence")
    for row in rows:
        for name, value in expected[str(row.id)].items():
            if getattr(row, name) != value:
                raise _corrupt(after, _component("wait", name))


def _key(row: HistoryRow) -> tuple[Any, ...]:
    """Identify a row among those of one event."""
    if row.source in ("attempt", "result"):
        return row.source, row.superstep, row.node_id, row.attempt
    if row.source == "wait":
        return row.source, row.id
    return row.source, row.word if row.source == "outcome" else row.superstep


def check_run_row(state: RunState, history: RunHistory, intent: AgentAdmissionIntent) -> None:
    """Hold the run row, the cache of the fold, and the moving columns of its waits against the fold.

    Raises:
        CorruptDataError: a projected column is unlike the fold's.
    """
    run, head, admission = history.run, state.head, state.admission
    if head is None or admission is None or state.checkpoint is None:
        raise _corrupt(state, "run_events")
    expected: dict[str, object] = {
        "head_sequence": head.sequence.value,
        "head_digest": head.digest.raw,
        "head_recorded_at": head.recorded_at.to_datetime(),
        "status": state.status.value,
        "revision": state.revision.value,
        "changed_at": None if state.changed_at is None else state.changed_at.to_datetime(),
        "lifecycle_sequence": None if state.lifecycle_sequence is None else state.lifecycle_sequence.value,
        "superstep": state.superstep.value,
        "checkpoint_digest": state.checkpoint.digest.raw,
        "graph_definition_digest": admission.graph_digest.raw,
        "agent_deadline_at": admission.deadline.to_datetime(),
        "thread_id": intent.provenance.thread_id.text,
        "invocation_id": intent.provenance.invocation_id.text,
    }
    for name, value in expected.items():
        if run[name] != value:
            raise _corrupt(state, f"runs.{name}")
    if run["fencing_epoch"] < state.epoch:
        raise _corrupt(state, "runs.fencing_epoch")
    _check_waits(state, history)


def _check_waits(state: RunState, history: RunHistory) -> None:
    outstanding = {wait.wait_id.text for wait in state.waits}
    stored = {row.id for row in history.rows if row.source == "wait" and row.status == "outstanding"}
    if outstanding != stored:
        raise _corrupt(state, "run_waits.status")


def _component(source: str, name: str) -> str:
    return f"{TABLES[source]}.{_COLUMNS.get((source, name), name)}"


def _given(value: Any) -> Any:
    if value is None:
        raise TypeError("a column that is never null is null")
    return value


def _odd_row(state: RunState, source: str) -> CorruptDataError:
    """Say in which table a row is missing, one too many, or of no event."""
    return CorruptDataError(tenant_id=state.tenant_id, run_id=state.run_id, component="row", reason=TABLES[source])


def _corrupt(state: RunState, component: str) -> CorruptDataError:
    return CorruptDataError(tenant_id=state.tenant_id, run_id=state.run_id, component=component)
