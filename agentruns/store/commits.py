"""What a worker commits for one run, and what the statement answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attrs import frozen

from agentruns.domain.lease import RunFence
from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.ledger.rows import CheckpointRow
from agentruns.errors import InvariantError
from agentruns.store.mapping import raw
from agentruns.store.statements import run_commit as statement


@frozen(kw_only=True)
class RunCommit:
    """The facts of one run that a worker commits together, or not at all.

    Attributes:
        fence: under which the worker writes; it must be live when the statement has locked the row.
        draft: what is written, legal at the head of its ``before``; the statement refuses any other head.
    """

    fence: RunFence
    draft: DraftedCommit

    @property
    def expected(self) -> JournalHead:
        """The head at which the facts were planned."""
        head = self.draft.before.head
        if head is None:
            raise InvariantError(reason="seed")
        return head


def parameters(commits: Sequence[RunCommit]) -> Mapping[str, object]:
    """Turn commits into the arrays of the statement."""
    return {
        **statement.ITEMS.parameters([_item(commit) for commit in commits]),
        **statement.EVENTS.parameters(_children(commits, _events)),
        **statement.STARTS.parameters(_children(commits, _starts)),
        **statement.RESULTS.parameters(_children(commits, _results)),
        **statement.WAITS.parameters(_children(commits, _waits)),
        **statement.NEW_WAITS.parameters(
            _children(commits, lambda each: ((wait.text,) for wait in each.draft.wait_ids))
        ),
    }


def _children(
    commits: Sequence[RunCommit], rows_of: Callable[[RunCommit], Iterable[tuple[object, ...]]]
) -> list[tuple[object, ...]]:
    return [(n, *row) for n, commit in enumerate(commits, 1) for row in rows_of(commit)]


def _item(commit: RunCommit) -> tuple[object, ...]:
    fence, draft, state, last = commit.fence, commit.draft, commit.draft.state, commit.draft.events[-1]
    moves = draft.is_transition
    return (
        fence.tenant_id.text,
        fence.run_id.text,
        fence.epoch.value,
        fence.attempt_id.text,
        commit.expected.sequence.value,
        commit.expected.digest.raw,
        draft.recorded_at,
        draft.gate,
        bool(draft.starts),
        last.sequence.value,
        last.digest.raw,
        state.status.value if moves else None,
        state.revision.value if moves else None,
        *_checkpoint(draft.checkpoint),
        draft.outcome.body if draft.outcome else None,
        raw(draft.outcome.digest) if draft.outcome else None,
    )


def _checkpoint(row: CheckpointRow | None) -> tuple[object, ...]:
    if row is None:
        return (None,) * 6
    return (
        row.superstep.value,
        row.checkpoint_id.text,
        row.ready,
        row.state,
        row.digest.raw,
        row.sequence.value,
    )


def _events(commit: RunCommit) -> Iterable[tuple[object, ...]]:
    for event in commit.draft.events:
        yield (
            event.sequence.value,
            event.event_id.text,
            event.kind.text,
            event.schema_digest.raw,
            event.data,
            event.digest.raw,
        )


def _starts(commit: RunCommit) -> Iterable[tuple[object, ...]]:
    for row in commit.draft.starts:
        yield row.superstep.value, row.node_id.text, row.attempt, row.attempt_id.text, row.sequence.value


def _results(commit: RunCommit) -> Iterable[tuple[object, ...]]:
    for row in commit.draft.results:
        yield (
            row.superstep.value,
            row.node_id.text,
            row.attempt,
            row.status,
            row.body,
            row.digest.raw,
            row.retry_not_before,
            row.sequence.value,
        )


def _waits(commit: RunCommit) -> Iterable[tuple[object, ...]]:
    for row in commit.draft.waits:
        yield (
            row.wait_id.text,
            row.kind,
            row.registration,
            row.digest.raw,
            row.sequence.value,
            row.due_at,
            row.expires_at,
        )
