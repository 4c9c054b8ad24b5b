"""Moves of the control plane in a random history: what settles waits, and what asks for the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.failure import FailureCategory
from agentruns.domain.failure_codes import DEADLINE_EXPIRED
from agentruns.domain.ids import EventId
from agentruns.domain.ledger.drafts import (
    CancellationRequestDraft,
    DraftedCommit,
    FailureDraft,
    FiringDraft,
    ResolutionDraft,
)
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredFailure
from agentruns.domain.ledger.records import OutstandingWait
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import WaitClass, WaitResolution, WaitResolver
from agentruns.testing.samples import failure, principal, schema_reference

if TYPE_CHECKING:
    from agentruns.testing.histories import History

Move: TypeAlias = Callable[[], DraftedCommit]


def payload(tree: JsonTree = None) -> JournalPayload:
    """Hold a request or an answer; its schema is nobody's."""
    return JournalPayload(
        schema=schema_reference("payload"), kind=JournalEventKind("sample-payload"), data=BoundedJson.of(tree)
    )


def waiting_moves(history: History) -> list[Move]:
    """Settle any wait whose time is right, or let an interrupt expire."""
    possible: list[Move] = []
    for wait in history.state.waits:
        if wait.wait_class is WaitClass.TIMER:
            if wait.due_at is not None and wait.due_at <= history.now:
                possible.append(partial(_fire, history, wait))
        elif not wait.is_expired(history.now):
            possible.append(partial(_resolve, history, wait))
        elif history.with_ends:
            possible.append(partial(_expire, history))
    return possible or _sooner(history)


def request_moves(history: History) -> list[Move]:
    """Now and then ask for the end of the run."""
    if not history.with_ends or history.random.random() > 0.02:  # noqa: PLR2004  # most runs are left alone
        return []
    by_deadline = history.random.random() < 0.3  # noqa: PLR2004  # some of them late
    return [partial(_request, history, by_deadline=by_deadline)]


def _sooner(history: History) -> list[Move]:
    """Go to the first instant at which something is due; without one the first wait has to be given up."""
    instants = [each.due_at for each in history.state.waits if each.due_at is not None]
    if instants:
        due_at = max(min(instants), history.now)
        wait = next(each for each in history.state.waits if each.due_at is not None and each.due_at <= due_at)
        return [partial(_fire, history, wait, at=due_at)]
    return [partial(_request, history, by_deadline=False)]


def _fire(history: History, wait: OutstandingWait, at: Timestamp | None = None) -> DraftedCommit:
    history.now = history.now if at is None else at
    draft = FiringDraft(state=history.state, event_id=history.mint(EventId), wait_id=wait.wait_id)
    return draft.build(history.now)


def _resolve(history: History, wait: OutstandingWait) -> DraftedCommit:
    resolver = WaitResolver(principal=wait.principal or principal(), scopes=wait.scopes)
    return ResolutionDraft(
        state=history.state,
        event_id=history.mint(EventId),
        wait_id=wait.wait_id,
        resolution=WaitResolution(resolver=resolver, payload=payload(history.random.randrange(10))),
    ).build(history.now)


def _expire(history: History) -> DraftedCommit:
    return FailureDraft(
        state=history.state,
        epoch=None,
        event_id=history.mint(EventId),
        outcome=StoredFailure(failure=failure(code="agent.interrupt.expired"), usage=history.state.usage),
    ).build(history.now)


def _request(history: History, *, by_deadline: bool) -> DraftedCommit:
    admission = history.state.admission
    if by_deadline and admission is not None:
        history.now = max(history.now, admission.deadline)
    code = str(DEADLINE_EXPIRED) if by_deadline else "sample.cancelled"
    reason = failure(category=FailureCategory.CANCELLED, code=code)
    return CancellationRequestDraft(
        state=history.state,
        event_id=history.mint(EventId),
        request=CancellationRequest(failure=reason),
        by_deadline=by_deadline,
    ).build(history.now)
