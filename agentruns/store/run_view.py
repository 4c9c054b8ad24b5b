"""What a statement saw of a run row when it had locked it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.lease import RunFence, RunLease
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.numbers import FencingEpoch, JournalSequence, RunRevision, Superstep
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import StoredValue, instant, optional_instant
from agentruns.store.statements.guards import ROW

T = TypeVar("T")

#: The column of each label.
RUN_COLUMNS: Final = {seen.name: str(seen.element.key) for seen in ROW}


@frozen(kw_only=True)
class HeadVersion:
    """Name the last event of a run by what a statement compares, which is there however damaged the rest is."""

    sequence: JournalSequence
    digest: Digest


@frozen
class LockedRun:
    """The moving part of a run row.

    Each column is read when it is asked for, so that a damaged one is in nobody's way who does not need it: a lease can
    be given back whatever else stands in the row. Every attribute raises :class:`CorruptDataError` for its own column.

    Attributes:
        epoch: the last one issued; 0 means never.
        ready_at: since when the run may be claimed.
        not_before: gate of a deferred run.
    """

    tenant_id: TenantId
    run_id: RunId
    _row: Any

    def _read(self, label: str, read: Callable[[Any], T]) -> T:
        with StoredValue(self.tenant_id, self.run_id, f"runs.{RUN_COLUMNS[label]}"):
            return read(getattr(self._row, label))

    @property
    def status(self) -> RunStatus:  # noqa: D102
        return RunStatus(self._row.run_status)

    @property
    def revision(self) -> RunRevision:  # noqa: D102
        return self._read("run_revision", RunRevision)

    @property
    def superstep(self) -> Superstep | None:  # noqa: D102
        return None if self._row.run_superstep is None else self._read("run_superstep", Superstep)

    @property
    def version(self) -> HeadVersion:
        """The head without its instant."""
        return HeadVersion(
            sequence=self._read("run_head_sequence", JournalSequence), digest=self._read("run_head_digest", Digest)
        )

    @property
    def head(self) -> JournalHead:  # noqa: D102
        version = self.version
        return JournalHead(
            sequence=version.sequence,
            digest=version.digest,
            recorded_at=self._read("run_head_recorded_at", instant),
        )

    @property
    def epoch(self) -> int:  # noqa: D102
        return int(self._row.run_epoch)

    @property
    def lease(self) -> RunLease | None:
        """The lease, expired or not; its columns are all set or none."""
        if self._row.run_attempt_id is None:
            return None
        fence = RunFence(
            tenant_id=self.tenant_id,
            run_id=self.run_id,
            attempt_id=self._read("run_attempt_id", lambda value: AttemptId(str(value))),
            epoch=self._read("run_epoch", FencingEpoch),
        )
        return RunLease(
            fence=fence,
            acquired_at=self._read("run_acquired_at", instant),
            renewed_at=self._read("run_renewed_at", instant),
            expires_at=self._read("run_expires_at", instant),
        )

    @property
    def ready_at(self) -> Timestamp | None:  # noqa: D102
        return self._read("run_ready_at", optional_instant)

    @property
    def not_before(self) -> Timestamp | None:  # noqa: D102
        return self._read("run_not_before", optional_instant)

    @property
    def is_quarantined(self) -> bool:
        """Whether the run is isolated; since when is of no interest to who writes."""
        return self._row.run_quarantined_at is not None

    @property
    def available_at(self) -> Timestamp | None:
        """When the run may be claimed, by readiness and gate."""
        instants = [each for each in (self.ready_at, self.not_before) if each is not None]
        return max(instants, default=None)
