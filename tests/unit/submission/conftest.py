"""The rows of runs that stories have brought somewhere, as one read gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, evolve

from agentruns.domain.digests import DigestPurpose as Purpose
from agentruns.domain.digests import digest_body
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.ids import EventId
from agentruns.domain.ledger.data import EventData
from agentruns.domain.ledger.drafts import AdmissionDraft
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.rows import OutcomeRow
from agentruns.domain.run_ends import (
    RunEnds,
    StoredAdmission,
    StoredCheckpoint,
    StoredEvent,
    StoredKey,
    StoredOutcome,
    StoredRun,
    StoredWait,
)
from agentruns.domain.submission import keyless_digest
from agentruns.domain.timestamps import Timestamp
from agentruns.testing import graphs, samples
from agentruns.testing.stories import STORIES, Story

NOW = Timestamp.parse("2026-01-02T03:04:05.000006Z")


NODES = (GraphNode.of("a", continue_to=["b"], wait_to=["b"]), GraphNode.of("b", terminal=True))


GRAPH = graphs.executable_of(NODES)


REQUEST = samples.admission_request(graph=GRAPH.definition.reference)


@define
class Record:
    """The rows of a run that a story has brought somewhere."""

    story: Story
    first: Any
    events: list[Event]
    request: Any = REQUEST

    @classmethod
    def of(cls, name: str) -> Record:
        first = AdmissionDraft.of(REQUEST, GRAPH).build(NOW)
        story = Story(GRAPH, first.state)
        STORIES[name][0](story)
        return cls(story, first, [event for commit in [first, *story.commits] for event in commit.events])

    def begin_with(self, first: Any, events: list[Event]) -> None:
        """Take another beginning; digests that are not right are made so."""
        previous, self.first, self.events = bytes(32), first, []
        for event in events:
            self.events.append(evolve(event, digest=digest_body(Purpose.EVENT, previous, event.envelope)))
            previous = self.events[-1].digest.raw

    def append(self, data: EventData, *, epoch: int = 0) -> Event:
        """Chain an event that no rule was asked about."""
        event = Event.following(
            self.events[-1].head,
            tenant_id=REQUEST.tenant_id,
            run_id=REQUEST.run_id,
            event_id=EventId.generate(),
            recorded_at=self.events[-1].recorded_at,
            epoch=epoch,
            data=data,
        )
        self.events.append(event)
        return event

    def read(self, **changes: Any) -> RunEnds:
        """Read the ends as the database gives them."""
        commits = [self.first, *self.story.commits]
        outcomes = {each.outcome.kind: each.outcome for each in commits if each.outcome is not None}
        newest = [each.checkpoint for each in commits if each.checkpoint is not None]
        waits = [wait for each in commits for wait in each.waits]
        open_waits = {wait.wait_id for wait in self.story.state.waits}
        previous = [None, *(event.digest.raw for event in self.events)]
        read: dict[str, Any] = {
            "tenant_id": REQUEST.tenant_id,
            "run_id": str(REQUEST.run_id),
            "key_digest": None,
            "now": NOW.to_datetime(),
            "is_read_only": False,
            "is_whole": True,
            "run": self.run_row(),
            "admitted": self.key_row(),
            "attached": None,
            "admission": self.admission_row(),
            "first": checkpoint_row(newest[0], None),
            "newest": checkpoint_row(newest[-1], newest[-2].digest.raw) if len(newest) > 1 else None,
            "events": {each.sequence.value: event_row(each, previous[n]) for n, each in enumerate(self.events)},
            "is_head_passed": False,
            "cancellation": outcome_row(outcomes.get("cancellation")),
            "outcome": outcome_row(outcomes.get("outcome")),
            "waits": tuple(wait_row(each) for each in waits if each.wait_id in open_waits),
            "quarantines": (),
        }
        return RunEnds(**(read | changes))

    def run_row(self, **changes: Any) -> StoredRun:
        state, intent = self.story.state, REQUEST.intent
        row = StoredRun(
            run_id=str(REQUEST.run_id),
            thread_id=str(REQUEST.ids.thread_id),
            invocation_id=str(REQUEST.ids.invocation_id),
            status=state.status.value,
            revision=state.revision.value,
            changed_at=moment(state.changed_at),
            lifecycle_sequence=int(str(state.lifecycle_sequence)),
            head_sequence=len(self.events),
            head_digest=self.events[-1].digest.raw,
            head_recorded_at=moment(self.events[-1].recorded_at),
            fencing_epoch=1,
            lease_attempt_id=None,
            lease_acquired_at=None,
            lease_renewed_at=None,
            lease_expires_at=None,
            quarantined_at=None,
            superstep=state.superstep.value,
            checkpoint_digest=state.checkpoint.digest.raw if state.checkpoint else None,
            scheduler_ready_at=moment(state.changed_at) if state.status.is_claimable else None,
            scheduler_not_before=None,
            graph_definition_digest=GRAPH.digest.raw,
            agent_deadline_at=moment(intent.budget.deadline),
        )
        return evolve(row, **changes)

    def key_row(self) -> StoredKey:
        digest = keyless_digest(REQUEST.tenant_id, REQUEST.run_id).raw
        return StoredKey(
            key_digest=digest, submission_digest=REQUEST.submission_digest.raw, created_at=NOW.to_datetime()
        )

    def admission_row(self) -> StoredAdmission:
        row = self.first.admission
        return StoredAdmission(
            agent_name=row.agent_name,
            agent_version=row.agent_version,
            admission_digest=row.admission_digest.raw,
            sequence=1,
            body=row.body,
        )


def moment(instant: Timestamp | None) -> Any:
    return None if instant is None else instant.to_datetime()


def checkpoint_row(row: Any, parent: bytes | None) -> StoredCheckpoint:
    return StoredCheckpoint(
        superstep=row.superstep.value,
        checkpoint_id=str(row.checkpoint_id),
        ready=row.ready,
        state_digest=digest_body(Purpose.STATE, row.state).raw,
        digest=row.digest.raw,
        sequence=row.sequence.value,
        parent_digest=parent,
    )


def event_row(event: Event, previous: bytes | None) -> StoredEvent:
    return StoredEvent(
        sequence=event.sequence.value,
        event_id=str(event.event_id),
        recorded_at=event.recorded_at.to_datetime(),
        epoch=event.epoch,
        kind=str(event.kind),
        schema_digest=event.schema_digest.raw,
        data=event.data,
        digest=event.digest.raw,
        previous=previous,
    )


def outcome_row(row: OutcomeRow | None) -> StoredOutcome | None:
    return None if row is None else StoredOutcome(digest=row.digest.raw, sequence=row.sequence.value, body=row.body)


def wait_row(row: Any) -> StoredWait:
    return StoredWait(
        wait_id=str(row.wait_id),
        kind=row.kind,
        digest=row.digest.raw,
        sequence=row.sequence.value,
        registration_digest=digest_body(Purpose.WAIT, row.registration).raw,
        is_settled=False,
    )


@pytest.fixture
def record_of() -> Callable[[str], Record]:
    """Give the rows of a story."""
    return Record.of
