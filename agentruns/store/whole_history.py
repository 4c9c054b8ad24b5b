"""What a reading at full depth needs beside the windows of the fold. Nothing of it is trusted yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from attrs import frozen
from sqlalchemy import RowMapping, Select

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.store.sender import Sender
from agentruns.store.statements import whole_calls
from agentruns.store.statements import whole_history as statements

#: Rows of one statement. Event data has at most 16 KiB, so a page of events has at most 16 MiB.
PAGE: Final = 1024
FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"


@frozen(kw_only=True)
class EventRow:
    """A row of the journal."""

    sequence: int
    event_id: str
    recorded_at: datetime
    epoch: int
    kind: str
    schema_digest: bytes
    data: bytes
    digest: bytes


@frozen(kw_only=True)
class WaitRow:
    """A wait and the event that is said to have settled it, whose members are ``None`` where there is none."""

    wait_id: str
    sequence: int
    status: str
    settled_sequence: int | None
    resolution_digest: bytes | None
    kind: str | None
    schema_digest: bytes | None
    data: bytes | None


@frozen(kw_only=True)
class IsolationRow:
    """A quarantine and its release, of which one may be missing: its members are ``None`` then."""

    quarantine_id: str | None
    quarantined_at: datetime | None
    cause_kind: str | None
    component: str | None
    body: bytes | None
    digest: bytes | None
    epoch: int | None
    release_released_at: datetime | None
    release_body: bytes | None
    release_digest: bytes | None


@frozen(kw_only=True)
class CallChangeRow:
    """A change of a call's place, and the event at its sequence, whose members are ``None`` where there is none."""

    invocation_id: str
    number: int
    status: str
    attempt_id: str | None
    body: bytes | None
    digest: bytes | None
    sequence: int
    event_kind: str | None
    event_schema_digest: bytes | None
    event_data: bytes | None


@frozen(kw_only=True)
class CallRow:
    """A call, the event that prepared it, and its last change; members are ``None`` where there is none.

    Attributes:
        risk: of a tool.
        sequence: of its preparation.
    """

    invocation_id: str
    superstep: int
    node_id: str
    intent: bytes
    status: str
    number: int
    risk: str | None
    sequence: int | None
    last_number: int | None
    last_status: str | None
    event_kind: str | None
    event_schema_digest: bytes | None
    event_data: bytes | None


class WholeHistory:
    """Read every row of a run's evidence, a page at a time."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def events(self, tenant_id: TenantId, run_id: RunId, *, after: int, until: int) -> tuple[EventRow, ...]:
        """Read the page of events after a sequence, in their order."""
        values = {**_named(tenant_id, run_id), "after_sequence": after, "until_sequence": until, "limit": PAGE}
        return tuple(EventRow(**row) for row in self._rows(statements.read_events, values))

    def waits(self, tenant_id: TenantId, run_id: RunId, *, after: str) -> tuple[WaitRow, ...]:
        """Read the page of waits after an id, in the order of ids."""
        values = {**_named(tenant_id, run_id), "after_id": after, "limit": PAGE}
        return tuple(WaitRow(**row) for row in self._rows(statements.read_waits, values))

    def isolations(self, tenant_id: TenantId, run_id: RunId) -> tuple[IsolationRow, ...]:
        """Read every quarantine of a run."""
        values = _named(tenant_id, run_id)
        return tuple(IsolationRow(**row) for row in self._rows(statements.read_isolations, values))

    def call_changes(
        self, kind: str, tenant_id: TenantId, run_id: RunId, *, after: tuple[str, int]
    ) -> tuple[CallChangeRow, ...]:
        """Read a page of changes of model or tool calls after a call and its number; empty after the last."""
        values = {**_named(tenant_id, run_id), "after_id": after[0], "after_number": after[1], "limit": PAGE}
        return tuple(CallChangeRow(**row) for row in self._rows(lambda: whole_calls.read_changes(kind), values))

    def calls(self, kind: str, tenant_id: TenantId, run_id: RunId, *, after: str) -> tuple[CallRow, ...]:
        """Read a page of model or tool calls after an id; empty after the last."""
        values = {**_named(tenant_id, run_id), "after_id": after, "limit": PAGE}
        return tuple(CallRow(**row) for row in self._rows(lambda: whole_calls.read_calls(kind), values))

    def _rows(self, statement: Callable[[], Select[Any]], values: dict[str, Any]) -> Iterable[RowMapping]:
        return self._work.execute(statement(), values).mappings()


def _named(tenant_id: TenantId, run_id: RunId) -> dict[str, Any]:
    return {"tenant_id": tenant_id.text, "run_id": run_id.text}
