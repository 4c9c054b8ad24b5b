"""Commit a run's facts through the lane that all drives of a process share, and settle every answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen

from agentruns.domain.lease import RunFence, RunLease
from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentRunsError,
    ContentionError,
    DatabaseClockRegressionError,
    IdConflictError,
    InvariantError,
    LeaseLostError,
    RunNotFoundError,
    RunQuarantinedError,
    StaleHeadError,
)
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.lane import Held, Parcel, answered_or_held
from agentruns.runtime.store import AgentRunStore
from agentruns.store.commits import RunCommit
from agentruns.store.runs import CommitAnswer, StoredEvent
from agentruns.store.unit_of_work import UnitOfWork

#: A stamp that was refused is taken afresh this often.
_REBUILDS: Final = 3
#: Reasons that stand behind an exact head and a live fence: nothing of the commit can be there already.
_PLANNED_ANEW: Final = frozenset({"gate", "wait_id"})


@frozen(kw_only=True)
class CommitPlan:
    """What one run wants to commit: everything but the stamp is fixed.

    Attributes:
        head: at which the facts were planned.
        build: drafts the commit at a stamp; pure, called once for each try.
        size: bytes of the bodies, which bound a set.
    """

    fence: RunFence
    head: JournalHead
    build: Callable[[Timestamp], DraftedCommit]
    size: int


@frozen(kw_only=True)
class CommitResult:
    """How a commit ended.

    Attributes:
        outcome: ``COMMITTED`` is the only permission to act on a start; ``None`` when it must be planned anew.
        word: ``done``, or why it has to be planned anew: ``gate`` or ``wait_id``.
        draft: as it was built last; of an ``IDEMPOTENT`` one, at the stored instant.
        held: the lease after the commit; ``None`` when it was cleared.
    """

    outcome: MutationOutcome | None
    word: str
    draft: DraftedCommit
    now: Timestamp
    held: HeldLease | None


@frozen(kw_only=True)
class _Sent:
    draft: DraftedCommit
    answer: CommitAnswer | None
    sent_at: float


class RunCommitter:
    """Send the commits of all runs of a process: what waits together is one statement and one commit."""

    def __init__(self, store: AgentRunStore) -> None:
        self._store = store
        # Drives that were answered together are ready to commit together. Halved, they would drift apart into ever
        # smaller sets, and a statement costs hardly less for being small.
        self._lane = store.lane(self._send, name="commits", takes_all=True)

    async def commit(self, plan: CommitPlan) -> CommitResult:
        """Commit a plan, or find it committed.

        Raises:
            LeaseLostError: the fence is not the live one; nothing was written.
            RunQuarantinedError: the run is isolated.
            StaleHeadError: ``journal``; the run moved on. Catch up and plan again.
            IdConflictError: an event's id stands for other content.
            ContentionError: the stamp was refused three times.
            StoreUnavailableError: the database is away; repeat with the same ids.
            CommitOutcomeUnknownError: likewise, and the commit may have happened.
        """
        keys = frozenset({(plan.fence.tenant_id, plan.fence.run_id)})
        for _ in range(_REBUILDS):
            sent = await self._lane.ask(Parcel(item=plan, keys=keys, size=plan.size))
            answer = sent.answer
            if answer is None:
                raise RunNotFoundError(tenant_id=plan.fence.tenant_id, id=plan.fence.run_id)
            if answer.word != "stamp":
                result = await self._settle(plan, sent, answer)
                if result.outcome is not None and result.draft.state.status.is_terminal:
                    # One that is found committed too: whoever committed it may not have told.
                    self._store.tell_of_end(plan.fence.run_id)
                return result
        raise ContentionError(run_id=plan.fence.run_id, attempts=_REBUILDS)

    def _send(self, work: UnitOfWork, plans: Sequence[CommitPlan], /, *, skip_locked: bool) -> Sequence[_Sent | Held]:
        stamp = self._store.clock.stamp()
        # The database has seen the head's instant, so a stamp may always be as late.
        drafts = [plan.build(max(stamp, plan.head.recorded_at)) for plan in plans]
        commits = [RunCommit(fence=plan.fence, draft=draft) for plan, draft in zip(plans, drafts, strict=True)]
        sent_at = time.monotonic()
        duration = self._store.options.lease_duration
        answers = work.runs.commit(commits, lease_duration=duration, skip_locked=skip_locked)
        self._observe(answers)
        held = answered_or_held(answers, skip_locked=skip_locked)
        return [
            each if isinstance(each, Held) else _Sent(draft=draft, answer=each, sent_at=sent_at)
            for draft, each in zip(drafts, held, strict=True)
        ]

    def _observe(self, answers: Sequence[CommitAnswer | None]) -> None:
        """Take the database's time from the answer, which is one for the whole statement."""
        found = [answer for answer in answers if answer is not None]
        if any(answer.word == "stamp" for answer in found):
            self._store.clock.correct(found[0].now)
        elif found:
            self._store.clock.observe(found[0].now)

    async def _settle(self, plan: CommitPlan, sent: _Sent, answer: CommitAnswer) -> CommitResult:
        if answer.word == "done":
            held = _lease_after(plan.fence, sent, answer)
            return CommitResult(
                outcome=MutationOutcome.COMMITTED, word="done", draft=sent.draft, now=answer.now, held=held
            )
        if answer.word in _PLANNED_ANEW:
            return CommitResult(outcome=None, word=answer.word, draft=sent.draft, now=answer.now, held=None)
        stored = await self._find(plan, sent.draft)
        if not stored:
            raise _refusal(plan, answer)
        draft = plan.build(stored[0].recorded_at)
        if not _is_same(draft, stored):
            event_id = stored[0].event_id
            raise IdConflictError(tenant_id=plan.fence.tenant_id, run_id=plan.fence.run_id, kind="event", id=event_id)
        return CommitResult(outcome=MutationOutcome.IDEMPOTENT, word="done", draft=draft, now=answer.now, held=None)

    async def _find(self, plan: CommitPlan, draft: DraftedCommit) -> tuple[StoredEvent, ...]:
        """Look for the commit's own events where they would stand: from the head of the plan onward."""
        ids = [event.event_id for event in draft.events]
        fence, after = plan.fence, plan.head.sequence.value
        return await self._store.read(
            lambda work: work.runs.find_events(fence.tenant_id, fence.run_id, ids, after=after)
        )


def _lease_after(fence: RunFence, sent: _Sent, answer: CommitAnswer) -> HeldLease | None:
    renewed_at, expires_at = answer.lease_renewed_at, answer.lease_expires_at
    if renewed_at is None or expires_at is None:
        return None
    lease = RunLease(fence=fence, acquired_at=renewed_at, renewed_at=renewed_at, expires_at=expires_at)
    return HeldLease(lease=lease, observed_at=answer.now, sent_at=sent.sent_at)


def _is_same(draft: DraftedCommit, stored: Sequence[StoredEvent]) -> bool:
    """Compare what a caller decides: kind, source and data. Instant, sequence and digest are the database's share."""
    found = {event.event_id: event for event in stored}
    return len(found) == len(draft.events) and all(
        (same := found.get(event.event_id)) is not None
        and (same.kind, same.epoch, same.data) == (event.kind.text, event.epoch, event.data)
        for event in draft.events
    )


def _refusal(plan: CommitPlan, answer: CommitAnswer) -> AgentRunsError:
    tenant_id, run_id = plan.fence.tenant_id, plan.fence.run_id
    if answer.word == "quarantined":
        return RunQuarantinedError(tenant_id=tenant_id, run_id=run_id)
    if answer.word in ("stale_fence", "no_lease", "expired"):
        return LeaseLostError(tenant_id=tenant_id, run_id=run_id, reason=answer.word)
    if answer.word == "clock":
        return DatabaseClockRegressionError(observed=answer.now, recorded=plan.head.recorded_at)
    if answer.word == "head":
        return StaleHeadError(tenant_id=tenant_id, run_id=run_id, reason="journal")
    return InvariantError(reason=f"answer_{answer.word}")
