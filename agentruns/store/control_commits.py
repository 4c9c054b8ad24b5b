"""What the control plane commits for runs that nobody needs to hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from attrs import frozen

from agentruns.domain.ids import RunId
from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvariantError
from agentruns.store.mapping import instant, raw
from agentruns.store.sender import Sender
from agentruns.store.statements import control_commit as statement

_STAMP_AGE: Final = timedelta(seconds=1)


@frozen(kw_only=True)
class ControlCommit:
    """One event of the control plane and what it writes beside it.

    Attributes:
        draft: legal at the head of its ``before``; the statement refuses any other head.
        until: from this instant of the database on it is too late.
    """

    draft: DraftedCommit
    until: Timestamp | None = None


@frozen(kw_only=True)
class ControlAnswer:
    """What the statement says of one commit.

    Attributes:
        word: ``done``, or the first reason why nothing was changed.
        now: the database's clock after the last lock of the statement.
    """

    word: str
    now: Timestamp


class ControlCommits:
    """Commit what the control plane decides."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def hold(self, run_ids: Sequence[tuple[TenantId, RunId]], *, skip_locked: bool) -> tuple[bool, ...]:
        """Lock the rows of runs until the transaction ends; ``False`` for one that somebody else holds, or for none.

        Without ``skip_locked`` it waits for whoever holds one, at most as long as the connection's ``lock_timeout``.
        """
        rows = [(tenant_id.text, run_id.text) for tenant_id, run_id in run_ids]
        found = self._work.execute(statement.hold(skip_locked=skip_locked), statement.HELD.parameters(rows))
        held = {row.n for row in found}
        return tuple(position in held for position in range(1, len(run_ids) + 1))

    def add(self, commits: Sequence[ControlCommit], *, skip_locked: bool) -> tuple[ControlAnswer | None, ...]:
        """Commit a set; ``None`` for an item whose row is held by somebody else, or does not exist."""
        parameters = {
            **statement.ITEMS.parameters([_item(commit) for commit in commits]),
            **statement.SETTLEMENTS.parameters(_settlements(commits)),
            "stamp_age": _STAMP_AGE,
        }
        answers: list[ControlAnswer | None] = [None] * len(commits)
        for row in self._work.execute(statement.control_commit(skip_locked=skip_locked), parameters):
            answers[row.n - 1] = ControlAnswer(word=row.answer, now=instant(row.now))
        return tuple(answers)


def _item(commit: ControlCommit) -> tuple[object, ...]:
    """Order the values of an item as the columns of the statement's set."""
    draft, after, head = commit.draft, commit.draft.projection, commit.draft.before.head
    if head is None:
        raise InvariantError(reason="seed")
    (event,), outcome = draft.events, draft.outcome
    return (
        event.tenant_id.text,
        event.run_id.text,
        head.sequence.value,
        head.digest.raw,
        draft.recorded_at,
        commit.until,
        after.status.value,
        after.revision.value,
        event.sequence.value,
        event.event_id.text,
        event.kind.text,
        event.schema_digest.raw,
        event.data,
        event.digest.raw,
        outcome.kind if outcome else None,
        outcome.body if outcome else None,
        raw(outcome.digest) if outcome else None,
    )


def _settlements(commits: Sequence[ControlCommit]) -> Iterator[tuple[object, ...]]:
    for position, commit in enumerate(commits, 1):
        for row in commit.draft.settlements:
            yield (
                position,
                row.wait_id.text,
                row.status.value,
                row.settled_sequence.value,
                row.resolution,
                raw(row.resolution_digest),
            )
