"""The evidence of a run in reading order: what the fold needs, and nothing of it trusted yet."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from attrs import frozen

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import instant
from agentruns.store.sender import Sender
from agentruns.store.statements import history as statements
from agentruns.store.tables import runs

_LAST: Final = 2**63 - 1


@frozen(kw_only=True)
class Window:
    """A part of a history: events after a sequence and the rows of some supersteps.

    Attributes:
        after_sequence: the last event that is not wanted.
        until_sequence: the last one that is.
        first_superstep: of checkpoints, attempts and results.
        last_superstep: likewise.
        maximum_events: above it, or above ``maximum_bytes``, the run row and the sums come alone.
    """

    after_sequence: int = 0
    until_sequence: int = _LAST
    first_superstep: int = 0
    last_superstep: int = _LAST
    maximum_events: int = statements.SHORT_EVENTS
    maximum_bytes: int = statements.SHORT_BYTES


@frozen(kw_only=True)
class HistoryRow:
    """A row of evidence in the uniform form; what its table does not have is ``None``.

    Attributes:
        source: ``event``, ``checkpoint``, ``attempt``, ``result``, ``wait``, ``outcome`` or ``admission``.
        sequence: the event that the row was committed with.
        word: kind of an event, wait or outcome; name of an admission's agent.
        number: epoch of an event; of a wait, the event that settled it.
        at: instant of an event, a retry's gate, or when a timer is due.
        until: when an interrupt expires.
    """

    source: str
    sequence: int
    superstep: int | None
    node_id: str | None
    attempt: int | None
    id: str | None
    word: str | None
    status: str | None
    number: int | None
    at: datetime | None
    until: datetime | None
    digest: bytes | None
    body: bytes | None
    second_digest: bytes | None
    second_body: bytes | None


@frozen(kw_only=True)
class RunHistory:
    """A run row and a window of its evidence, in one snapshot.

    Attributes:
        run: the columns of the run row by name.
        now: the database's clock.
        event_count: events of the window.
        byte_count: bytes of their data and of the bodies that belong to them.
        rows: in order of sequence; empty when the window is larger than it may be.
    """

    run: dict[str, Any]
    now: Timestamp
    event_count: int
    byte_count: int
    rows: tuple[HistoryRow, ...]


_ROW: Final = tuple(f"history_{name}" for name in HistoryRow.__annotations__)
_RUN_COLUMNS: Final = tuple(column.key for column in runs.c)


class Journal:
    """Read the evidence of runs."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def read(self, tenant_id: TenantId, run_id: RunId, window: Window = Window()) -> RunHistory | None:
        """Read a window beside the run row; ``None`` when there is no such run."""
        values = {
            "tenant_id": tenant_id.text,
            "run_id": run_id.text,
            **{name: getattr(window, name) for name in Window.__annotations__},
        }
        rows = self._work.execute(statements.read_history(), values).all()
        if not rows:
            return None
        first = rows[0]
        return RunHistory(
            run={name: getattr(first, name) for name in _RUN_COLUMNS},
            now=instant(first.now),
            event_count=first.event_count,
            byte_count=first.byte_count,
            rows=tuple(_history_row(row) for row in rows if row.history_source is not None),
        )

    def supersteps(self, tenant_id: TenantId, run_id: RunId, *, first: int, limit: int) -> tuple[tuple[int, int], ...]:
        """List supersteps with the sequence of the event that began each, from ``first`` on."""
        values = {"tenant_id": tenant_id.text, "run_id": run_id.text, "first_superstep": first, "limit": limit}
        found = self._work.execute(statements.read_supersteps(), values)
        return tuple((row.superstep, row.sequence) for row in found)


def _history_row(row: Any) -> HistoryRow:
    values = (getattr(row, name) for name in _ROW)
    return HistoryRow(**dict(zip(HistoryRow.__annotations__, values, strict=True)))
