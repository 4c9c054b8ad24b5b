"""The leases of runs: claim, renew, release, defer, observe. One method, one statement, over a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.lease import RunFence, RunLease
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.store.journal import RunHistory, history_of
from agentruns.store.mapping import StoredValue, instant
from agentruns.store.run_view import LockedRun
from agentruns.store.sender import Sender
from agentruns.store.sets import ItemSet
from agentruns.store.statements import leases as statements


@frozen(kw_only=True)
class LeaseAnswer:
    """What a statement says of one item.

    Attributes:
        word: ``done``, or the first reason why nothing was changed.
        now: the database's clock after the last lock of the statement.
        run: the run row as it was locked, before the change.
        lease: the lease after the change; ``None`` when nothing was changed or the lease was cleared.
    """

    word: str
    now: Timestamp
    run: LockedRun
    lease: RunLease | None = None


@frozen(kw_only=True)
class Renewal:
    """Extend a fence's lease to ``desired``, a value that stays the same over retries."""

    fence: RunFence
    desired: Timestamp


@frozen(kw_only=True)
class Release:
    """Give a fence's lease back; the run is ready again now, or after ``delay``."""

    fence: RunFence
    delay: timedelta | None = None


@frozen(kw_only=True)
class Deferral:
    """Give a fence's lease back at an exact head, and keep the run from being claimed before an instant."""

    fence: RunFence
    head: JournalHead
    not_before: Timestamp


@frozen(kw_only=True)
class ReadyClaims:
    """What a batch claim took, oldest first, and when.

    Attributes:
        leases: each with the run's history, where it is short; ``None`` where its drive has to read it.
        has_room: a place was free under the limit of the tenant, or it has none.
    """

    leases: tuple[tuple[RunLease, RunHistory | None], ...]
    observed_at: Timestamp
    has_room: bool


class Leases:
    """Decide who may write for a run, by the database's clock."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def claim(
        self, tenant_id: TenantId, run_id: RunId, attempt_id: AttemptId, *, duration: timedelta
    ) -> LeaseAnswer | None:
        """Take a named run; ``None`` when it does not exist."""
        row = (tenant_id.text, run_id.text, attempt_id.text)
        fence = RunFence(tenant_id=tenant_id, run_id=run_id, attempt_id=attempt_id, epoch=FencingEpoch(1))
        constants = {"lease_duration": duration, "of_tenant": tenant_id.text, "limit": 1}
        (answer,) = self._change(statements.claim(), statements.CLAIMS, [row], [fence], **constants)
        return answer

    def supersede(
        self,
        tenant_id: TenantId,
        run_id: RunId,
        attempt_id: AttemptId,
        *,
        expected_epoch: FencingEpoch | None,
        duration: timedelta,
    ) -> LeaseAnswer | None:
        """Take a named run from whoever holds it, at an expected epoch where one is given; ``None`` for no such run."""
        row = (tenant_id.text, run_id.text, attempt_id.text, expected_epoch and expected_epoch.value)
        fence = RunFence(tenant_id=tenant_id, run_id=run_id, attempt_id=attempt_id, epoch=FencingEpoch(1))
        statement, items = statements.supersede(), statements.SUPERSESSIONS
        (answer,) = self._change(statement, items, [row], [fence], lease_duration=duration)
        return answer

    def claim_ready(
        self,
        tenant_id: TenantId,
        *,
        limit: int,
        attempt_ids: Sequence[AttemptId],
        graph_digests: Sequence[Digest],
        duration: timedelta,
    ) -> ReadyClaims:
        """Take up to ``limit`` of the oldest ready runs whose graph is among those given."""
        parameters = {
            **statements.FRESH.parameters([(attempt.text,) for attempt in attempt_ids]),
            "of_tenant": tenant_id.text,
            "limit": limit,
            "graph_digests": [digest.raw for digest in graph_digests],
            "lease_duration": duration,
        }
        found = self._work.execute(statements.claim_ready(), parameters)
        names = tuple(found.keys())
        # A dictionary for each row: there are many columns, and a row's own mapping looks each of them up anew.
        rows = [dict(zip(names, row, strict=True)) for row in found]
        taken = [row for row in rows if row["run_id"] is not None]
        leases = tuple((_claimed_lease(tenant_id, row), _history(row)) for row in taken)
        return ReadyClaims(leases=leases, observed_at=instant(rows[0]["now"]), has_room=rows[0]["room"] > 0)

    def renew(
        self, renewals: Sequence[Renewal], *, horizon: timedelta, skip_locked: bool
    ) -> tuple[LeaseAnswer | None, ...]:
        """Extend leases that live, at most ``horizon`` ahead of the database's clock; never shorten one."""
        rows = [(*_fence(renewal.fence), renewal.desired) for renewal in renewals]
        statement = statements.renew(skip_locked=skip_locked)
        fences = [renewal.fence for renewal in renewals]
        return self._change(statement, statements.RENEWALS, rows, fences, horizon=horizon)

    def release(self, releases: Sequence[Release], *, skip_locked: bool) -> tuple[LeaseAnswer | None, ...]:
        """Give leases back, expired ones too; the epoch stays."""
        rows = [(*_fence(release.fence), release.delay) for release in releases]
        statement = statements.release(skip_locked=skip_locked)
        return self._change(statement, statements.RELEASES, rows, [release.fence for release in releases])

    def defer(self, deferrals: Sequence[Deferral], *, skip_locked: bool) -> tuple[LeaseAnswer | None, ...]:
        """Set gates and give the leases back in the same statement; ``due`` when the time has come already."""
        rows = [
            (*_fence(each.fence), each.head.sequence.value, each.head.digest.raw, each.not_before) for each in deferrals
        ]
        statement = statements.defer(skip_locked=skip_locked)
        return self._change(statement, statements.DEFERRALS, rows, [each.fence for each in deferrals])

    def observe(self, fences: Sequence[RunFence]) -> tuple[LeaseAnswer | None, ...]:
        """Read the run rows of fences beside the clock, without a lock."""
        return self._change(statements.observe(), statements.FENCES, [_fence(fence) for fence in fences], fences)

    def _change(
        self,
        statement: Any,
        items: ItemSet,
        rows: Sequence[Sequence[object]],
        fences: Sequence[RunFence],
        **constants: object,
    ) -> tuple[LeaseAnswer | None, ...]:
        answers: list[LeaseAnswer | None] = [None] * len(rows)
        for row in self._work.execute(statement, {**items.parameters(rows), **constants}):
            answers[row.n - 1] = _answer(fences[row.n - 1], row)
        return tuple(answers)


def _fence(fence: RunFence) -> tuple[str, str, int, str]:
    return fence.tenant_id.text, fence.run_id.text, fence.epoch.value, fence.attempt_id.text


def _answer(fence: RunFence, row: Any) -> LeaseAnswer:
    run = LockedRun(fence.tenant_id, fence.run_id, row)
    lease = None
    if getattr(row, "lease_expires_at", None) is not None:
        owner = RunFence(
            tenant_id=fence.tenant_id,
            run_id=fence.run_id,
            attempt_id=fence.attempt_id,
            epoch=FencingEpoch(row.fencing_epoch),
        )
        lease = _lease(owner, row)
    return LeaseAnswer(word=row.answer, now=instant(row.now), run=run, lease=lease)


def _claimed_lease(tenant_id: TenantId, row: Mapping[str, Any]) -> RunLease:
    fence = RunFence(
        tenant_id=tenant_id,
        run_id=RunId(str(row["run_id"])),
        attempt_id=AttemptId(str(row["lease_attempt_id"])),
        epoch=FencingEpoch(row["fencing_epoch"]),
    )
    return RunLease(
        fence=fence,
        acquired_at=instant(row["lease_acquired_at"]),
        renewed_at=instant(row["lease_renewed_at"]),
        expires_at=instant(row["lease_expires_at"]),
    )


def _history(row: Mapping[str, Any]) -> RunHistory | None:
    """Give the history that came with a claim, unless it was too long or ends below the head that was locked."""
    history = history_of(row)
    last = max((each.sequence for each in history.rows), default=0)
    return history if last == row["head_sequence"] else None


def _lease(fence: RunFence, row: Any) -> RunLease:
    # The other two were written by the statement that answers.
    with StoredValue(fence.tenant_id, fence.run_id, "runs.lease_acquired_at"):
        acquired_at = instant(row.lease_acquired_at)
    return RunLease(
        fence=fence,
        acquired_at=acquired_at,
        renewed_at=instant(row.lease_renewed_at),
        expires_at=instant(row.lease_expires_at),
    )
