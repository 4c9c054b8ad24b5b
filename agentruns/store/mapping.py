"""Go between columns and scalars; what a column cannot hold, or a scalar cannot be, is corrupt."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agentruns.domain.digests import Digest
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.lease import RunFence, RunLease
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.numbers import FencingEpoch, JournalSequence
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp


def instant(value: datetime) -> Timestamp:
    """Read a ``timestamptz``; the driver gives the infinities as naive values, which are refused."""
    return Timestamp.from_datetime(value)


def optional_instant(value: datetime | None) -> Timestamp | None:
    """Read a nullable ``timestamptz``."""
    return None if value is None else Timestamp.from_datetime(value)


def moment(value: Timestamp | None) -> datetime | None:
    """Write a ``timestamptz``."""
    return None if value is None else value.to_datetime()


def raw(value: Digest | None) -> bytes | None:
    """Write a digest's column."""
    return None if value is None else value.raw


def head_of(sequence: int, digest: bytes, recorded_at: datetime) -> JournalHead:
    """Read the head of a run row."""
    return JournalHead(
        sequence=JournalSequence(sequence), digest=Digest(digest), recorded_at=Timestamp.from_datetime(recorded_at)
    )


def lease_of(tenant_id: TenantId, run_id: RunId, row: Any, *, prefix: str = "run_") -> RunLease | None:
    """Read the lease columns of a run row; all of them are set or none."""
    attempt_id = getattr(row, f"{prefix}attempt_id")
    if attempt_id is None:
        return None
    return RunLease(
        fence=RunFence(
            tenant_id=tenant_id,
            run_id=run_id,
            attempt_id=AttemptId(str(attempt_id)),
            epoch=FencingEpoch(getattr(row, f"{prefix}epoch")),
        ),
        acquired_at=instant(getattr(row, f"{prefix}acquired_at")),
        renewed_at=instant(getattr(row, f"{prefix}renewed_at")),
        expires_at=instant(getattr(row, f"{prefix}expires_at")),
    )
