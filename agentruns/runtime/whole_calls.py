"""Hold the calls of a run, their bodies too, against the events that name them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Final

from attrs import define, field

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.domain.json_limits import MIB
from agentruns.domain.ledger.call_data import (
    CallAttemptStarted,
    CallCommitted,
    ModelInvocationPrepared,
    ToolErrorCommitted,
    ToolInvocationPrepared,
)
from agentruns.domain.ledger.data import EventData, parse_data
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.ledger.kinds import EventKind, find_kind
from agentruns.domain.scalars import JournalEventKind
from agentruns.errors import InvalidJsonError
from agentruns.runtime.replay_reading import HistorySource
from agentruns.runtime.whole_run_checks import RunChecks
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.whole_history import FIRST_ID, CallChangeRow, CallRow, WholeHistory

KINDS: Final = ("model", "tool")
MAXIMUM_BODY_BYTES: Final = 128 * MIB

_PREPARED: Final = {"model": EventKind.MODEL_INVOCATION_PREPARED, "tool": EventKind.TOOL_INVOCATION_PREPARED}
_INTENTS: Final = {"model": DigestPurpose.MODEL_INTENT, "tool": DigestPurpose.TOOL_INTENT}
_BODIES: Final = {
    EventKind.MODEL_RESPONSE_COMMITTED: DigestPurpose.MODEL_RESPONSE,
    EventKind.MODEL_ERROR_COMMITTED: DigestPurpose.MODEL_ERROR,
    EventKind.TOOL_RESULT_COMMITTED: DigestPurpose.TOOL_RESULT,
    EventKind.TOOL_RESULT_RECONCILED: DigestPurpose.TOOL_RESULT,
    EventKind.TOOL_ERROR_COMMITTED: DigestPurpose.TOOL_ERROR,
    EventKind.TOOL_ERROR_RECONCILED: DigestPurpose.TOOL_ERROR,
}


@define
class CallChecks:
    """Check every call of a run up to a head.

    Attributes:
        events: how many events of each kind the journal has; each of a call must have exactly one row.
        until: the head's sequence. A row above it must have its event too, but neither is counted.
        byte_count: of the bodies that were checked.
    """

    store: HistorySource
    checks: RunChecks
    events: Counter[EventKind]
    until: int
    byte_count: int = field(default=0, init=False)

    async def count(self) -> int:
        """Check all calls, and count them.

        Raises:
            CorruptDataError: a row is missing, is one too many, or does not say what its event says.
        """
        return sum([await self._checked(kind) for kind in KINDS])

    async def _checked(self, kind: str) -> int:
        changes = await self._changes(kind)
        named = {each: count for each, count in self.events.items() if each in _kinds(kind)}
        if changes != sum(named.values()):
            raise self.checks.corrupt("row", reason=f"{kind}_invocation_revisions")
        calls = await self._calls(kind)
        if calls != named.get(_PREPARED[kind], 0):
            raise self.checks.corrupt("row", reason=f"{kind}_invocations")
        return calls

    async def _changes(self, kind: str) -> int:
        count, after = 0, (FIRST_ID, -1)
        while rows := await self.store.read(partial(_change_page, kind, self.checks, after)):
            for row in rows:
                self._check_change(kind, row)
                count += row.sequence <= self.until
            after = (rows[-1].invocation_id, rows[-1].number)
        return count

    async def _calls(self, kind: str) -> int:
        count, after = 0, FIRST_ID
        while rows := await self.store.read(partial(_call_page, kind, self.checks, after)):
            for row in rows:
                self._check_call(kind, row)
                count += row.sequence is not None and row.sequence <= self.until
            after = rows[-1].invocation_id
        return count

    def _check_change(self, kind: str, row: CallChangeRow) -> None:
        """Two changes never name one event: call and number are its data's, and they are the key."""
        table = f"{kind}_invocation_revisions"
        event, data = self._event(kind, row, f"{table}.sequence")
        attempt_id = getattr(data, "attempt_id", None)
        purpose = _BODIES.get(event)
        digest = getattr(data, "body_digest", None) if purpose is not None else None
        expected = {
            "invocation_id": getattr(data, "invocation_id").text,  # noqa: B009 - every shape of a call has it
            "number": getattr(data, "number").value,  # noqa: B009
            "status": _status(data),
            "attempt_id": None if attempt_id is None else attempt_id.text,
            "digest": None if digest is None else digest.raw,
        }
        for name, value in expected.items():
            self.checks.insist(f"{table}.{name}", holds=getattr(row, name) == value)
        self.checks.insist(f"{table}.body", holds=(row.body is None) == (purpose is None))
        if purpose is not None and digest is not None and row.body is not None:
            self._check_body(purpose, digest, row.body)

    def _check_call(self, kind: str, row: CallRow) -> None:
        table = f"{kind}_invocations"
        _, data = self._event(kind, row, f"{table}.invocation_id")
        if not isinstance(data, ModelInvocationPrepared | ToolInvocationPrepared):
            raise self.checks.corrupt(f"{table}.invocation_id")
        expected = {
            "superstep": data.superstep.value,
            "node_id": data.node_id.text,
            "risk": data.risk.value if isinstance(data, ToolInvocationPrepared) else None,
            "number": row.last_number,
            "status": row.last_status,
        }
        for name, value in expected.items():
            self.checks.insist(f"{table}.{name}", holds=getattr(row, name) == value)
        self._check_body(_INTENTS[kind], data.body_digest, row.intent)

    def _event(self, kind: str, row: CallChangeRow | CallRow, component: str) -> tuple[EventKind, Any]:
        """Read the event beside a row, which must be one of this kind of calls."""
        if row.event_kind is not None and row.event_schema_digest is not None and row.event_data is not None:
            event = find_kind(JournalEventKind(row.event_kind), Digest(row.event_schema_digest))
            if event in _kinds(kind):
                return event, parse_data(event, row.event_data)
        raise self.checks.corrupt(component)

    def _check_body(self, purpose: DigestPurpose, digest: Digest, body: bytes) -> None:
        self.checks.insist("body", holds=digest_body(purpose, body) == digest)
        self.byte_count += len(body)
        try:
            BoundedJson.read(body, MAXIMUM_BODY_BYTES)
        except InvalidJsonError as error:
            raise self.checks.corrupt("body", reason=error.reason) from error


def _kinds(kind: str) -> frozenset[EventKind]:
    return frozenset(each for each in EventKind if each.value.startswith(f"{kind}-"))


def _status(data: EventData) -> str:
    if isinstance(data, ModelInvocationPrepared | ToolInvocationPrepared):
        return "prepared"
    if isinstance(data, CallAttemptStarted):
        return "executing"
    if isinstance(data, CallCommitted):
        return "committed"
    is_unknown = isinstance(data, ToolErrorCommitted) and data.effect is ToolEffect.UNKNOWN
    return "unknown" if is_unknown else "failed"


def _change_page(kind: str, checks: RunChecks, after: tuple[str, int], work: UnitOfWork) -> tuple[CallChangeRow, ...]:
    return WholeHistory(work).call_changes(kind, checks.tenant_id, checks.run_id, after=after)


def _call_page(kind: str, checks: RunChecks, after: str, work: UnitOfWork) -> tuple[CallRow, ...]:
    return WholeHistory(work).calls(kind, checks.tenant_id, checks.run_id, after=after)
