"""Runs: what workers commit, and what became of a commit whose answer was lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from attrs import frozen

from agentruns.domain.ids import EventId, RunId
from agentruns.domain.numbers import JournalSequence
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.store.commits import RunCommit, parameters
from agentruns.store.mapping import instant, optional_instant
from agentruns.store.sender import Sender
from agentruns.store.statements.history import find_events
from agentruns.store.statements.run_commit import run_commit

_STAMP_AGE: Final = timedelta(seconds=1)


@frozen(kw_only=True)
class CommitAnswer:
    """What the statement says of one commit.

    Attributes:
        word: ``done``, or the first reason why nothing was changed.
        now: the database's clock after the last lock of the statement.
        lease_renewed_at: of the lease after the commit; ``None`` when it changed nothing or cleared the lease.
        lease_expires_at: likewise.
    """

    word: str
    now: Timestamp
    lease_renewed_at: Timestamp | None
    lease_expires_at: Timestamp | None


@frozen(kw_only=True)
class StoredEvent:
    """An event found under its id: what a retry is compared with."""

    sequence: JournalSequence
    event_id: EventId
    recorded_at: Timestamp
    epoch: int
    kind: str
    data: bytes


class Runs:
    """Commit what workers found."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def commit(
        self, commits: Sequence[RunCommit], *, lease_duration: timedelta, skip_locked: bool
    ) -> tuple[CommitAnswer | None, ...]:
        """Commit a set; ``None`` for an item whose row is held by somebody else, or does not exist."""
        values: dict[str, Any] = {**parameters(commits), "stamp_age": _STAMP_AGE, "lease_duration": lease_duration}
        answers: list[CommitAnswer | None] = [None] * len(commits)
        for n, word, now, renewed_at, expires_at in self._work.rows(run_commit(skip_locked=skip_locked), values):
            answers[n - 1] = CommitAnswer(
                word=word,
                now=instant(now),
                lease_renewed_at=optional_instant(renewed_at),
                lease_expires_at=optional_instant(expires_at),
            )
        return tuple(answers)

    def find_events(
        self, tenant_id: TenantId, run_id: RunId, event_ids: Sequence[EventId], *, after: int
    ) -> tuple[StoredEvent, ...]:
        """Look for events of a run by id, after a sequence."""
        values = {
            "tenant_id": tenant_id.text,
            "run_id": run_id.text,
            "event_ids": [event_id.text for event_id in event_ids],
            "after_sequence": after,
        }
        return tuple(
            StoredEvent(
                sequence=JournalSequence(row.sequence),
                event_id=EventId(str(row.event_id)),
                recorded_at=instant(row.recorded_at),
                epoch=row.epoch,
                kind=row.kind,
                data=row.data,
            )
            for row in self._work.execute(find_events(), values)
        )
