"""Evidence whose digests are all right and that still says what no run can have done."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, evolve

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.digests import Digest, digest_body
from agentruns.domain.digests import DigestPurpose as Purpose
from agentruns.domain.graph.nodes import GraphNode
from agentruns.domain.ids import EventId, WaitId
from agentruns.domain.ledger.data import EventData, InterruptResolved, RunFailed, TimerFired
from agentruns.domain.ledger.drafts import AdmissionDraft
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.outcomes import StoredCancellation
from agentruns.domain.ledger.rows import OutcomeRow
from agentruns.domain.numbers import RunRevision, Superstep
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
from agentruns.domain.run_ends_checks import verify_ends
from agentruns.domain.run_ends_outcome import show
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import keyless_digest
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode
from agentruns.errors import AgentSubmissionNotFoundError, CorruptDataError, RunNotFoundError, SchemaRejectedError
from agentruns.runtime.verification import DecodedAdmissions, RunVerifier
from agentruns.testing import graphs, samples
from agentruns.testing.stories import OUTPUT, STORIES, USAGE, Story

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

    @classmethod
    def of(cls, name: str) -> Record:
        first = AdmissionDraft.of(REQUEST, GRAPH).build(NOW)
        story = Story(GRAPH, first.state)
        STORIES[name][0](story)
        return cls(story, first, [event for commit in [first, *story.commits] for event in commit.events])

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
        digest=row.digest.raw,
        sequence=row.sequence.value,
        registration_digest=digest_body(Purpose.WAIT, row.registration).raw,
        is_settled=False,
    )


def intent_of(_digest: Digest, body: bytes) -> AgentAdmissionIntent:
    return decode(body, AgentAdmissionIntent)


def component(ends: RunEnds) -> tuple[str, str]:
    with pytest.raises(CorruptDataError) as found:
        show(verify_ends(ends, intent_of))
    return found.value.component, found.value.reason


@pytest.mark.parametrize("name", sorted(STORIES))
def test_every_story_verifies(name: str) -> None:
    record = Record.of(name)
    shown = show(verify_ends(record.read(), intent_of))
    assert (shown.status, shown.revision) == (STORIES[name][1], record.story.state.revision)
    if shown.status is RunStatus.SUCCEEDED:
        outcome: Any = shown.outcome
        assert (outcome.result.output, outcome.result.usage) == (OUTPUT, USAGE)


def test_a_run_that_is_not_there_is_not_corrupt() -> None:
    nothing = dict.fromkeys(("run", "admitted", "attached", "admission", "first"))
    with pytest.raises(RunNotFoundError) as missing:
        verify_ends(Record.of("fresh").read(**nothing), intent_of)
    assert missing.value.id == REQUEST.run_id
    with pytest.raises(AgentSubmissionNotFoundError):
        verify_ends(Record.of("fresh").read(**nothing, run_id=None), intent_of)


def test_a_journal_that_does_not_begin_with_an_admission() -> None:
    record = Record.of("fresh")
    record.events = [
        Event.following(
            None,
            tenant_id=REQUEST.tenant_id,
            run_id=REQUEST.run_id,
            event_id=EventId.generate(),
            recorded_at=NOW,
            epoch=0,
            data=TimerFired(wait_id=WaitId.generate(), revision=RunRevision(1)),
        )
    ]
    assert component(record.read()) == ("order", "")


def test_an_event_of_a_kind_that_this_release_does_not_know() -> None:
    record = Record.of("fresh")
    first = record.events[0]
    unknown = evolve(first, schema_digest=Digest(bytes(32)))
    chained = evolve(unknown, digest=digest_body(Purpose.EVENT, bytes(32), unknown.envelope))
    record.events = [chained]
    assert component(record.read()) == ("kind", "unsupported_schema")


def test_a_run_id_that_is_none_is_corrupt_and_named_as_it_stands() -> None:
    with pytest.raises(CorruptDataError) as found:
        verify_ends(Record.of("fresh").read(run_id="no id"), intent_of)
    assert (found.value.component, found.value.run_id) == ("run_events", "no id")


def test_an_admission_of_another_run() -> None:
    other = samples.admission_request(2, graph=GRAPH.definition.reference)
    first = AdmissionDraft.of(other, GRAPH).build(NOW)
    record = Record.of("fresh")
    event = evolve(first.events[0], run_id=REQUEST.run_id)
    record.events = [evolve(event, digest=digest_body(Purpose.EVENT, bytes(32), event.envelope))]
    record.first = first
    record.story.state = first.state
    assert component(record.read()) == ("admission", "cross_tenant_reference")


def test_a_waiting_run_whose_barrier_did_not_wait() -> None:
    record = Record.of("between")
    event = record.append(
        InterruptResolved(wait_id=WaitId.generate(), revision=RunRevision(2), resolution_digest=GRAPH.digest)
    )
    row = record.run_row(status="waiting", revision=2, lifecycle_sequence=event.sequence.value, scheduler_ready_at=None)
    waiting = StoredWait(wait_id="x", digest=bytes(32), sequence=1, registration_digest=bytes(32), is_settled=False)
    row = evolve(row, changed_at=moment(event.recorded_at))
    assert component(record.read(run=row, waits=(waiting,))) == ("waits", "")


def test_an_outcome_of_another_kind_than_the_end() -> None:
    record = Record.of("between")
    outcome = StoredCancellation(usage=USAGE)
    event = record.append(
        RunFailed(
            superstep=Superstep(1),
            revision=RunRevision(2),
            outcome_digest=outcome.digest,
            in_flight=0,
            failed=1,
            exhausted=0,
            abandoned=(),
        ),
        epoch=1,
    )
    row = record.run_row(
        status="failed",
        revision=2,
        changed_at=moment(event.recorded_at),
        lifecycle_sequence=event.sequence.value,
        scheduler_ready_at=None,
    )
    stored = StoredOutcome(digest=outcome.digest.raw, sequence=event.sequence.value, body=outcome.canonical)
    assert component(record.read(run=row, outcome=stored)) == ("outcome", "")


def test_a_cancellation_that_another_event_names() -> None:
    record = Record.of("cancelling")
    ends = record.read()
    assert ends.cancellation is not None
    moved = evolve(ends.cancellation, sequence=1)
    assert component(evolve(ends, cancellation=moved)) == ("cancellation", "")


def test_an_end_that_its_transition_does_not_name() -> None:
    run = verify_ends(Record.of("failed").read(), intent_of)
    elsewhere = evolve(run, lifecycle=evolve(run.lifecycle, transition=run.journal.at(1)))
    with pytest.raises(CorruptDataError) as found:
        show(elsewhere)
    assert found.value.component == "outcome"


@define
class Deployment:
    """A registry whose schemas refuse one part."""

    refused: str

    @property
    def schemas(self) -> Deployment:
        return self

    def resolve(self, digest: Digest) -> Any:
        assert digest == GRAPH.digest
        return GRAPH

    def validate(self, reference: Any, _value: Any, part: str) -> None:
        if part == self.refused:
            raise SchemaRejectedError(reference=reference, part=part, keyword="type", schema_pointer="", pointer="")


def test_an_output_that_its_schema_refuses_is_corrupt_and_an_input_is_refused() -> None:
    ends = Record.of("succeeded").read()
    verifier: Any = RunVerifier
    refusals = {"output": CorruptDataError, "input": SchemaRejectedError, "evidence": SchemaRejectedError}
    for part, error in refusals.items():
        strict = verifier(executables=Deployment(part))
        with pytest.raises(error):
            strict.snapshot(strict.verify(ends))
    lenient = verifier(executables=Deployment("nothing"))
    assert lenient.snapshot(lenient.verify(ends)).status is RunStatus.SUCCEEDED


def test_decoded_admissions_are_kept_within_their_bound() -> None:
    intents = [samples.admission_request(number, graph=GRAPH.definition.reference).intent for number in (1, 2, 3)]
    kept = DecodedAdmissions(maximum_bytes=2 * len(intents[0].canonical))
    first = kept(intents[0].digest, intents[0].canonical)
    assert first == intents[0]
    second = kept(intents[1].digest, intents[1].canonical)
    assert kept(intents[0].digest, b"never read") is first
    kept(intents[2].digest, intents[2].canonical)
    assert kept(intents[0].digest, b"never read") is first
    assert kept(intents[1].digest, intents[1].canonical) is not second
