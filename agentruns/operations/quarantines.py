"""Let a quarantined run go on: on evidence, by somebody with a name, and only when the whole run verifies."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest
from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.ids import QuarantineId, RunId
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.quarantine import Quarantine, QuarantineRelease
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.verification_report import RunVerificationReport
from agentruns.errors import (
    ContentionError,
    CorruptDataError,
    DatabaseClockRegressionError,
    RefusedError,
)
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.whole_run import WholeRun, WholeRunReader
from agentruns.store.quarantines import StoredIsolation

#: So often the run moves before it is given up; one that is quarantined does not move at all.
_ATTEMPTS: Final = 3


@frozen(kw_only=True)
class ReleasedQuarantine:
    """Say what was released, or that it had been before.

    Attributes:
        outcome: ``COMMITTED``, or ``IDEMPOTENT`` when it was released on the same evidence before.
        quarantine: why the run was isolated.
        release: who let it go on, and on what; when it is idempotent, those of the first time.
        released_at: by the database's clock.
        verification: what this call has verified; ``None`` when it is idempotent, for then nothing was read.
    """

    outcome: MutationOutcome
    quarantine: Quarantine
    release: QuarantineRelease
    released_at: Timestamp
    verification: RunVerificationReport | None


async def release_quarantine(
    store: AgentRunStore,
    executables: ExecutableGraphRegistry,
    tenant_id: TenantId,
    run_id: RunId,
    quarantine_id: QuarantineId,
    *,
    principal: PrincipalIdentity,
    reason: str,
    evidence: BoundedJson,
) -> ReleasedQuarantine:
    """Verify a quarantined run from its first event on, and let it go on if nothing is found. It is claimable at once.

    One statement clears the mark of the run row and inserts the release, which nobody changes afterwards. Repeat the
    call with the same evidence until it answers. Use the operator role: PostgreSQL refuses it to a runtime.

    Args:
        store: where the run is.
        executables: must have the run's graph, unless the quarantine was released before.
        tenant_id: whose run it is.
        run_id: of the run.
        quarantine_id: the record that isolates the run now. There is one release of each.
        principal: who decides. Nothing here verifies it.
        reason: why; 1..1024 bytes of text on one line, kept in the record.
        evidence: what was decided on. Only its digest is stored; keep the document.

    Raises:
        InvalidValueError: the reason is no such text; nothing was sent.
        RunNotFoundError: the tenant has no such run.
        RefusedError: ``not_releasable``, and nothing changed. ``found`` says why: the component that does not verify,
            ``epoch_exhausted``, ``another_quarantine`` where the run was never isolated under this id, or
            ``other_evidence`` on which it was released before.
        ExecutableGraphUnavailableError: this process lacks the run's graph; deploy it here.
        SchemaVerificationError: ``missing_privileges``: this role may not release.
        StoreError: the database; retryable where it says so.
    """
    for name, value, kind in (
        ("tenant_id", tenant_id, TenantId),
        ("run_id", run_id, RunId),
        ("quarantine_id", quarantine_id, QuarantineId),
        ("evidence", evidence, BoundedJson),
    ):
        check_argument(name, value, kind)
    asked = _AskedRelease(
        store=store,
        reader=WholeRunReader(store, executables),
        tenant_id=tenant_id,
        run_id=run_id,
        quarantine_id=quarantine_id,
        authority=OperatorAuthority(principal=principal, reason=reason),
        evidence_digest=evidence.digest,
    )
    for _ in range(_ATTEMPTS):
        if (released := await asked.attempt()) is not None:
            return released
    raise ContentionError(reason="rebuilt")


@frozen(kw_only=True)
class _AskedRelease:
    """Hold one call."""

    store: AgentRunStore
    reader: WholeRunReader
    tenant_id: TenantId
    run_id: RunId
    quarantine_id: QuarantineId
    authority: OperatorAuthority
    evidence_digest: Digest

    async def attempt(self) -> ReleasedQuarantine | None:
        """Decide at the head as it is now; ``None`` when somebody else was faster, and then it is looked at anew."""
        isolation = await self._isolation()
        if isolation.release is not None and isolation.released_at is not None:
            return self._repeated(isolation, isolation.release, isolation.released_at)
        run = await self._verified()
        release = QuarantineRelease(
            quarantine_id=self.quarantine_id,
            authority=self.authority,
            evidence_digest=self.evidence_digest,
            verification_digest=run.report.digest,
        )
        answer = await self.store.run(
            lambda work: work.quarantines.release(self.tenant_id, self.run_id, head=run.head, release=release)
        )
        if answer is None or answer.word in ("another", "head"):
            return None
        if answer.word == "clock":
            raise DatabaseClockRegressionError(observed=answer.now, recorded=isolation.quarantined_at)
        if answer.word != "done":
            raise self._refused(answer.word)
        self.store.notifier.ready(self.tenant_id.text)
        return ReleasedQuarantine(
            outcome=MutationOutcome.COMMITTED,
            quarantine=isolation.quarantine,
            release=release,
            released_at=answer.now,
            verification=run.report,
        )

    async def _isolation(self) -> StoredIsolation:
        """Read the record; corrupt bytes of it refuse as those of the run do."""
        try:
            found = await self.store.read(
                lambda work: work.quarantines.find(self.tenant_id, self.run_id, self.quarantine_id)
            )
        except CorruptDataError as error:
            raise self._refused(error.component) from error
        if found is None:
            raise self._refused("another_quarantine")
        return found

    async def _verified(self) -> WholeRun:
        try:
            return await self.reader.read(self.tenant_id, self.run_id)
        except CorruptDataError as error:
            raise self._refused(error.component) from error

    def _repeated(
        self, isolation: StoredIsolation, release: QuarantineRelease, released_at: Timestamp
    ) -> ReleasedQuarantine:
        if release.evidence_digest != self.evidence_digest:
            raise self._refused("other_evidence")
        return ReleasedQuarantine(
            outcome=MutationOutcome.IDEMPOTENT,
            quarantine=isolation.quarantine,
            release=release,
            released_at=released_at,
            verification=None,
        )

    def _refused(self, found: str) -> RefusedError:
        return RefusedError(reason="not_releasable", tenant_id=self.tenant_id, run_id=self.run_id, found=found)
