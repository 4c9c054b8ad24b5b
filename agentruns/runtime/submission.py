"""Decide a submission, step by step, without doing any of the steps.

The order of the steps is the contract, and it is the same on a connection of ours and inside a caller's transaction.
So they stand here once, as a generator: it yields what is to be asked of the database and is sent the answer.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeAlias, cast

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.run_ends import RunEnds
from agentruns.domain.run_ends_checks import VerifiedRun
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentAdmissionConflictError,
    AgentAdmissionRejectedError,
    AgentSubmissionConflictError,
    ContentionError,
    DatabaseClockRegressionError,
    ExecutableGraphUnavailableError,
    NotFoundError,
    UnitOfWorkError,
)
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.preparation import PreparedSubmission
from agentruns.runtime.verification import RunVerifier
from agentruns.store.admissions import NewAdmission
from agentruns.store.ends import RunLookup
from agentruns.store.keys import KeyAttachment, ProbeAnswer, SubmissionProbe

#: How often an insert that nothing explains is tried again.
MAXIMUM_REPETITIONS: Final = 3


@frozen(kw_only=True)
class AgentRunAdmission:
    """Answer a submission.

    Attributes:
        outcome: ``COMMITTED`` when this call made the run, or gave it its key; ``IDEMPOTENT`` when it was there.
            Joined to a transaction, ``COMMITTED`` means that it will be there once that transaction has committed.
        snapshot: the run, as it stands now. Its ids are those of the run that the key stands for, not the candidates.
    """

    outcome: MutationOutcome
    snapshot: AgentRunSnapshot


#: What a step asks for, and in the same order what it is answered: ``bool``, :class:`ProbeAnswer`, :class:`RunEnds`,
#: ``bool``.
SubmissionStep: TypeAlias = NewAdmission | SubmissionProbe | RunLookup | KeyAttachment
SubmissionSteps: TypeAlias = Generator[SubmissionStep, Any, AgentRunAdmission]


def submission_steps(
    prepared: PreparedSubmission, *, clock: DatabaseClock, verifier: RunVerifier, is_joined: bool
) -> SubmissionSteps:
    """Insert first, and find out only then why nothing was inserted: evidence, then graph, then clock.

    Joined, and without an observation of the database's clock, the probe goes first: in a caller's transaction nothing
    is tried that could abort it.
    """
    tried: NewAdmission | None = None
    if not is_joined and clock.has_observation and prepared.kept_error is None:
        tried = _built_in_time(prepared, clock.stamp())
        if tried is not None and (yield from _insert(tried)):
            return _committed(prepared, tried, verifier)
    repetitions = MAXIMUM_REPETITIONS + (tried is None)
    for left in reversed(range(repetitions + 1)):
        seen = yield from _probe(prepared)
        if seen.has_key or seen.has_candidate:
            found = yield from _existing(prepared, seen, verifier)
            if found is not None:
                return found
            continue
        _refuse(prepared, seen, tried, clock)
        if left:
            clock.correct(seen.now)
            tried = prepared.build(clock.stamp())
            if (yield from _insert(tried)):
                return _committed(prepared, tried, verifier)
    raise ContentionError(run_id=prepared.run_id, attempts=MAXIMUM_REPETITIONS)


def _existing(
    prepared: PreparedSubmission, seen: ProbeAnswer, verifier: RunVerifier
) -> Generator[SubmissionStep, Any, AgentRunAdmission | None]:
    """Judge what is there; ``None`` when it is gone again, or when another key was faster: the probe says more."""
    lookup = prepared.lookup_by_key if seen.has_key else prepared.lookup_by_run
    ends = yield from _read(lookup)
    try:
        stored = verifier.verify(ends)
    except NotFoundError:
        return None
    if not prepared.stands_under_key_of(stored):
        _refuse_other_run(prepared, stored)
        if not stored.has_key and prepared.key_digest is not None:
            return (yield from _attached(prepared, prepared.key_digest, seen, verifier, stored))
    elif stored.submission_digest != prepared.submission_digest:
        raise _key_conflict(prepared, stored)
    _raise_kept(prepared)
    return AgentRunAdmission(outcome=MutationOutcome.IDEMPOTENT, snapshot=verifier.snapshot(stored))


def _refuse_other_run(prepared: PreparedSubmission, stored: VerifiedRun) -> None:
    """Refuse a candidate run id that stands for other content, other ids, or the content of another key."""
    if stored.submission_digest != prepared.submission_digest or stored.ids != prepared.request.ids:
        raise AgentAdmissionConflictError(tenant_id=prepared.tenant_id, run_id=prepared.run_id)
    if stored.has_key and prepared.key_digest is not None:
        raise _key_conflict(prepared, stored)


def _attached(
    prepared: PreparedSubmission, key_digest: Digest, seen: ProbeAnswer, verifier: RunVerifier, stored: VerifiedRun
) -> Generator[SubmissionStep, Any, AgentRunAdmission | None]:
    """Give the key to the run that was admitted without one."""
    if seen.is_read_only:
        raise UnitOfWorkError(reason="read_only")
    _raise_kept(prepared)
    snapshot = verifier.snapshot(stored)
    attachment = KeyAttachment(
        tenant_id=prepared.tenant_id,
        run_id=prepared.run_id,
        key_digest=key_digest,
        keyless_digest=prepared.keyless_digest,
    )
    if (yield from _attach(attachment)):
        return AgentRunAdmission(outcome=MutationOutcome.COMMITTED, snapshot=snapshot)
    return None


def _refuse(prepared: PreparedSubmission, seen: ProbeAnswer, tried: NewAdmission | None, clock: DatabaseClock) -> None:
    """Say why nothing may be inserted, when nothing stands under key and run id. Silence: it may be tried again."""
    if seen.is_read_only:
        raise UnitOfWorkError(reason="read_only")
    _raise_kept(prepared)
    if not seen.has_graph:
        graph = prepared.request.intent.graph
        raise ExecutableGraphUnavailableError(reason="not_registered", graph=graph, tenant_id=prepared.tenant_id)
    if tried is not None and seen.now < tried.admission.admitted_at:
        clock.correct(seen.now)
        raise DatabaseClockRegressionError(observed=seen.now, recorded=tried.admission.admitted_at)
    prepared.admit(seen.now)


def _raise_kept(prepared: PreparedSubmission) -> None:
    if prepared.kept_error is not None:
        raise prepared.kept_error


def _key_conflict(prepared: PreparedSubmission, stored: VerifiedRun) -> AgentSubmissionConflictError:
    return AgentSubmissionConflictError(
        tenant_id=prepared.tenant_id,
        run_id=stored.ids.run_id,
        recorded_digest=stored.submission_digest,
        offered_digest=prepared.submission_digest,
    )


def _built_in_time(prepared: PreparedSubmission, stamp: Timestamp) -> NewAdmission | None:
    """Build, unless the deadline has come: then the run may be there already, and evidence goes first."""
    try:
        return prepared.build(stamp)
    except AgentAdmissionRejectedError:
        return None


def _committed(prepared: PreparedSubmission, built: NewAdmission, verifier: RunVerifier) -> AgentRunAdmission:
    verifier.expect(prepared.request.intent)
    snapshot = prepared.fresh_snapshot(built.admission)
    return AgentRunAdmission(outcome=MutationOutcome.COMMITTED, snapshot=snapshot)


def _insert(built: NewAdmission) -> Generator[SubmissionStep, Any, bool]:
    return cast("bool", (yield built))


def _probe(prepared: PreparedSubmission) -> Generator[SubmissionStep, Any, ProbeAnswer]:
    return cast("ProbeAnswer", (yield prepared.probe))


def _read(lookup: RunLookup) -> Generator[SubmissionStep, Any, RunEnds]:
    return cast("RunEnds", (yield lookup))


def _attach(attachment: KeyAttachment) -> Generator[SubmissionStep, Any, bool]:
    return cast("bool", (yield attachment))
