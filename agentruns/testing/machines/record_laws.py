"""What every journal shows, whatever its run has met: written over its plain JSON, without the fold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from attrs import define, field, frozen

from agentruns.domain.ledger.event import Event
from agentruns.domain.timestamps import Timestamp

_ATTEMPT: Final = "graph-node-attempt-"
_BARRIER: Final = "graph-barrier-"
_TERMINAL: Final = frozenset({"graph-barrier-succeeded", "graph-run-failed", "agent-cancellation-confirmed"})
_REQUESTS: Final = frozenset({"agent-cancellation-requested", "agent-deadline-cancellation-requested"})
_SETTLING: Final = frozenset({"graph-interrupt-resolved", "graph-timer-fired"})
_MAXIMUM_ATTEMPTS: Final = 64


@frozen(kw_only=True)
class RecordedEvent:
    """Hold what a journal says of one event; instants are in microseconds."""

    sequence: int
    recorded_at: int
    epoch: int
    kind: str
    data: Mapping[str, Any]

    @classmethod
    def of(cls, event: Event) -> RecordedEvent:
        """Take a stored event."""
        return cls(
            sequence=event.sequence.value,
            recorded_at=event.recorded_at.micros,
            epoch=event.epoch,
            kind=event.kind.text,
            data=json.loads(event.data),
        )


class RecordLawError(AssertionError):
    """A journal shows what no journal may show."""


def check_record(events: Iterable[Event | RecordedEvent], ready: Mapping[int, Sequence[str]]) -> None:
    """Hold a journal against the laws of attempts, barriers, waits and ends.

    Args:
        events: all of a run's, in their order.
        ready: the ready nodes of each checkpoint, by superstep.

    Raises:
        RecordLawError: the first law that is broken, and where.
    """
    recorded = [each if isinstance(each, RecordedEvent) else RecordedEvent.of(each) for each in events]
    _check_order(recorded)
    reading = _Reading(ready=ready)
    for event in recorded:
        reading.take(event)


def _check_order(events: Sequence[RecordedEvent]) -> None:
    _insist([each.sequence for each in events] == list(range(1, len(events) + 1)), "sequences have a gap", events[-1])
    for before, after in pairwise(events):
        _insist(before.recorded_at <= after.recorded_at, "time runs backwards", after)
        _insist(before.kind not in _TERMINAL, "something follows the end", after)
    workers = [each for each in events if each.epoch]
    for before, after in pairwise(workers):
        _insist(before.epoch <= after.epoch, "an older fence writes after a newer one", after)
    revisions = [int(each.data["revision"]) for each in events if "revision" in each.data]
    _insist(revisions == list(range(2, 2 + len(revisions))), "a revision is skipped or repeated", events[-1])


@define(kw_only=True)
class _Attempt:
    epoch: int
    end: str | None = None
    gate: str | None = None


@define(kw_only=True)
class _Reading:
    """Read a journal from its beginning."""

    ready: Mapping[int, Sequence[str]]
    superstep: int = 0
    attempts: dict[str, list[_Attempt]] = field(factory=dict)
    outstanding: list[str] = field(factory=list)
    known_waits: set[str] = field(factory=set)
    is_cancelling: bool = False

    def take(self, event: RecordedEvent) -> None:
        if event.kind.startswith(_ATTEMPT):
            self._attempt(event)
        elif event.kind.startswith(_BARRIER):
            self._barrier(event)
        elif event.kind in _SETTLING:
            self._settle(event)
        elif event.kind in _REQUESTS or event.kind == "graph-run-failed":
            self._end(event)
        elif event.kind == "agent-cancellation-confirmed":
            _insist(self.is_cancelling, "a cancellation is confirmed that nobody asked for", event)

    def _attempt(self, event: RecordedEvent) -> None:
        data, node = event.data, event.data["node_id"]
        _insist(not self.outstanding, "a node moves while the run waits", event)
        _insist(not self.is_cancelling, "a node moves after the end was asked for", event)
        _insist(int(data["superstep"]) == self.superstep, "a node moves in another step than its run", event)
        _insist(node in self.ready[self.superstep], "a node moves that is not ready", event)
        made = self.attempts.setdefault(node, [])
        if "attempt_id" in data:
            self._start(event, made)
            return
        _insist(bool(made) and made[-1].end is None, "an attempt ends that is not under way", event)
        _insist(int(data["attempt"]) == len(made), "an attempt ends that is not the last one", event)
        _insist(made[-1].epoch == event.epoch, "an attempt ends under another fence than it was started under", event)
        made[-1].end = event.kind.removeprefix(_ATTEMPT)
        made[-1].gate = data.get("retry_not_before")

    def _start(self, event: RecordedEvent, made: list[_Attempt]) -> None:
        _insist(int(event.data["attempt"]) == len(made) + 1 <= _MAXIMUM_ATTEMPTS, "attempts are misnumbered", event)
        if made:
            last = made[-1]
            _insist(last.end != "succeeded", "a node is started again after it has succeeded", event)
            if last.end is None:
                _insist(last.epoch < event.epoch, "an attempt under way is started again under its own fence", event)
            else:
                _insist(last.gate is not None, "a node is started again that failed for good", event)
                _insist(_micros(last.gate) <= event.recorded_at, "a node is started again before its time", event)
        made.append(_Attempt(epoch=event.epoch))

    def _barrier(self, event: RecordedEvent) -> None:
        _insist(not self.outstanding and not self.is_cancelling, "a step ends that may not go on", event)
        _insist(int(event.data["superstep"]) == self.superstep, "a step ends that is not the run's", event)
        ends = {node: [each.end for each in made][-1:] for node, made in self.attempts.items()}
        for node in self.ready[self.superstep]:
            _insist(ends.get(node) == ["succeeded"], "a step ends without the result of each of its nodes", event)
        self.superstep, self.attempts = self.superstep + 1, {}
        self.outstanding = [each["wait_id"] for each in event.data.get("waits", ())]
        _insist(self.known_waits.isdisjoint(self.outstanding), "a wait id is used again", event)
        _insist((event.kind == "graph-barrier-waiting") == bool(self.outstanding), "waits do not fit", event)
        self.known_waits |= set(self.outstanding)

    def _settle(self, event: RecordedEvent) -> None:
        _insist(event.data["wait_id"] in self.outstanding, "a wait is settled that is not outstanding", event)
        self.outstanding.remove(event.data["wait_id"])

    def _end(self, event: RecordedEvent) -> None:
        _insist(list(event.data["abandoned"]) == self.outstanding, "waits are left behind", event)
        _insist(not self.is_cancelling, "a run ends otherwise than was asked for", event)
        self.outstanding = []
        self.is_cancelling = event.kind in _REQUESTS


def _micros(instant: str | None) -> int:
    return 0 if instant is None else Timestamp.parse(instant).micros


def _insist(holds: bool, law: str, event: RecordedEvent) -> None:
    if not holds:
        raise RecordLawError(f"{law}: event {event.sequence}, {event.kind}, epoch {event.epoch}")
