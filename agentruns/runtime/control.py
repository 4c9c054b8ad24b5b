"""What decisions of the control plane have in common: made at the head that was read, again if it has moved.

In a transaction of our own, a decision that was overtaken once is made again while the run's row is held. A run that
commits faster than we read and write would overtake it every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import evolve, frozen

from agentruns.domain.ids import RunId
from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.ledger.state import RunState
from agentruns.domain.run_ends_checks import VerifiedRun
from agentruns.domain.scalars import TenantId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    DatabaseClockRegressionError,
    InvariantError,
    RunQuarantinedError,
    UnitOfWorkError,
)
from agentruns.runtime.clock import DatabaseClock
from agentruns.store.control_commits import ControlAnswer
from agentruns.store.mapping import instant

#: How often a decision is made again on one connection when the head moved on or the stamp was refused.
MAXIMUM_REPETITIONS: Final = 3
#: Words of an answer that only say that somebody was faster, or that something was found out meanwhile.
_READ_AGAIN: Final = frozenset({"head", "stamp", "clock", "quarantined", "expired"})


@frozen(kw_only=True)
class AgentRunMutation:
    """Answer a change of a run.

    Attributes:
        outcome: ``COMMITTED`` when this call made the change; ``IDEMPOTENT`` when it had been made before.
            Joined to a transaction, ``COMMITTED`` means that it will stand once that transaction has committed.
        snapshot: the run, as it stands after it.
    """

    outcome: MutationOutcome
    snapshot: AgentRunSnapshot


@frozen(kw_only=True)
class ControlPlan:
    """An event of the control plane at the head of a run: everything but the stamp is fixed.

    Attributes:
        state: at that head.
        draft: drafts the commit at a stamp; pure, called once for each try.
        until: from this instant of the database on it is too late.
        size: bytes of the bodies, which bound a set.
    """

    state: RunState
    draft: Callable[[Timestamp], DraftedCommit]
    until: Timestamp | None = None
    size: int = 0

    @property
    def run(self) -> tuple[TenantId, RunId]:
        """The run that it is for."""
        return self.state.tenant_id, self.state.run_id

    def build(self, stamp: Timestamp) -> DraftedCommit:
        """Draft the commit at a stamp; the database has seen the head's instant, so it may always be as late."""
        if self.state.head is None:
            raise InvariantError(reason="seed")
        return self.draft(max(stamp, self.state.head.recorded_at))


@frozen(kw_only=True)
class SentControl:
    """What was sent of a plan, and what the statement said: ``None`` when there is no such run."""

    draft: DraftedCommit
    answer: ControlAnswer | None

    @property
    def is_committed(self) -> bool:
        """Whether it is done; if not, the run must be read again to say why.

        Raises:
            InvariantError: the statement gave a reason that nobody knows.
        """
        if self.answer is None or self.answer.word in _READ_AGAIN:
            return False
        if self.answer.word != "done":
            raise InvariantError(reason=f"answer_{self.answer.word}")
        return True

    @property
    def made_ready(self) -> bool:
        """Whether the run may be claimed because of it."""
        return self.answer is not None and self.answer.word == "done" and self.draft.state.status.is_claimable

    @property
    def ended(self) -> bool:
        """Whether the run is over because of it."""
        return self.answer is not None and self.answer.word == "done" and self.draft.state.status.is_terminal


def check_isolation(stored: VerifiedRun) -> None:
    """Refuse to change a run that somebody has to look at.

    Raises:
        RunQuarantinedError: an operator decides.
    """
    if stored.is_quarantined:
        provenance = stored.admission.intent.provenance
        quarantine_id = stored.rows.ends.quarantines[0].quarantine_id
        raise RunQuarantinedError(tenant_id=provenance.tenant_id, run_id=provenance.run_id, quarantine_id=quarantine_id)


def check_transaction(stored: VerifiedRun) -> None:
    """Refuse to write where nothing may be written.

    Raises:
        UnitOfWorkError: ``read_only``.
    """
    if stored.rows.ends.is_read_only:
        raise UnitOfWorkError(reason="read_only")


def check_clock(stored: VerifiedRun, clock: DatabaseClock) -> Timestamp:
    """Refuse a clock that went back behind the head, stamp by what the read brought, and give that instant.

    Raises:
        DatabaseClockRegressionError: try again later.
    """
    now, recorded = instant(stored.rows.ends.now), instant(stored.rows.run.head_recorded_at)
    if now < recorded:
        raise DatabaseClockRegressionError(observed=now, recorded=recorded)
    clock.observe(now)
    return now


def shown_after(snapshot: AgentRunSnapshot, draft: DraftedCommit) -> AgentRunSnapshot:
    """Show a run that goes on as a commit leaves it."""
    state = draft.state
    return evolve(snapshot, status=state.status, revision=state.revision, changed_at=draft.recorded_at)
