"""The evidence of a run in reading order: what the fold needs, and nothing of it trusted yet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import starmap
from typing import Any, Final

from attrs import frozen
from sqlalchemy import RowMapping

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import instant
from agentruns.store.sender import Sender
from agentruns.store.statements import history as statements
from agentruns.store.statements import history_sizes as sizes
from agentruns.store.tables import runs

_LAST: Final = 2**63 - 1


@frozen(kw_only=True)
class Window:
    """A part of a history: events after a sequence and the rows of some supersteps.

    Attributes:
        after_sequence: the last event that is not wanted.
        until_sequence: the last one that is.
        first_superstep: of checkpoints, attempts and results; without what it wrote up to ``after_sequence``.
        last_superstep: likewise; without what it wrote beyond ``until_sequence``.
        with_base: bring the checkpoint that the first superstep began with, too.
        maximum_events: above it, or above ``maximum_bytes``, the run row and the sums come alone.
    """

    after_sequence: int = 0
    until_sequence: int = _LAST
    first_superstep: int = 0
    last_superstep: int = _LAST
    with_base: bool = False
    maximum_events: int = statements.SHORT_EVENTS
    maximum_bytes: int = statements.SHORT_BYTES

    def holds(self, sequence: int) -> bool:
        """Whether an event is in it."""
        return self.after_sequence < sequence <= self.until_sequence

    def brought(self, history: RunHistory) -> bool:
        """Whether the rows came, and not the sums alone."""
        return history.event_count <= self.maximum_events and history.byte_count <= self.maximum_bytes


@frozen(kw_only=True)
class SuperstepSize:
    """What one superstep weighs, before any of it is read.

    Attributes:
        until_sequence: its last event, which made the next checkpoint; ``None`` while there is none.
        event_count: of its events after the one that was asked for.
        byte_count: of these events and their bodies, without those of waits.
        result_bytes: of the results of all its nodes.
    """

    superstep: int
    until_sequence: int | None
    event_count: int
    byte_count: int
    result_bytes: int


@frozen
class HistoryRow:
    """A row of evidence in the uniform form, its columns in their order; what its table does not have is ``None``.

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
        rows: in no order; empty when the window is larger than it may be.
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
        row = self._work.execute(statements.read_history(), values).mappings().one_or_none()
        return None if row is None else history_of(row)

    def superstep_sizes(
        self, tenant_id: TenantId, run_id: RunId, window: Window, *, limit: int
    ) -> tuple[SuperstepSize, ...]:
        """Measure up to ``limit`` supersteps from the first of a window on, as far as its events go."""
        values = _part(tenant_id, run_id, window) | {"superstep": window.first_superstep, "limit": limit}
        found = self._work.execute(sizes.read_superstep_sizes(), values)
        return tuple(
            SuperstepSize(
                superstep=row.superstep,
                until_sequence=row.next_sequence,
                event_count=row.event_count,
                byte_count=row.byte_count,
                result_bytes=row.result_bytes,
            )
            for row in found
        )

    def event_sizes(
        self, tenant_id: TenantId, run_id: RunId, window: Window, *, limit: int
    ) -> tuple[tuple[int, int], ...]:
        """Measure the next events of a window's first superstep: sequence, and bytes with all bodies."""
        values = _part(tenant_id, run_id, window) | {"superstep": window.first_superstep, "limit": limit}
        found = self._work.execute(sizes.read_event_sizes(), values)
        return tuple((row.sequence, row.byte_count) for row in found)


def _part(tenant_id: TenantId, run_id: RunId, window: Window) -> dict[str, object]:
    return {
        "tenant_id": tenant_id.text,
        "run_id": run_id.text,
        "after_sequence": window.after_sequence,
        "until_sequence": window.until_sequence,
    }


def history_of(row: RowMapping | Mapping[str, Any]) -> RunHistory:
    """Read a run row with its gathered history: one array for each column, all in one order."""
    arrays = [row[name] or () for name in _ROW]
    return RunHistory(
        run={name: row[name] for name in _RUN_COLUMNS},
        now=instant(row["now"]),
        event_count=row["event_count"],
        byte_count=row["byte_count"],
        rows=tuple(starmap(HistoryRow, zip(*arrays, strict=True))),
    )
