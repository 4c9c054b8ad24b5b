"""Evidence whose digests are all right and that still says what no run can have done."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.digests import Digest
from agentruns.domain.ids import WaitId
from agentruns.domain.ledger.data import InterruptResolved, RunFailed, TimerFired
from agentruns.domain.ledger.drafts import AdmissionDraft
from agentruns.domain.ledger.outcomes import StoredCancellation, StoredFailure
from agentruns.domain.numbers import RunRevision, Superstep
from agentruns.domain.run_ends import (
    RunEnds,
    StoredOutcome,
    StoredWait,
)
from agentruns.domain.run_ends_checks import verify_ends
from agentruns.domain.run_ends_outcome import show
from agentruns.domain.status import RunStatus
from agentruns.domain.wire import decode
from agentruns.errors import AgentSubmissionNotFoundError, CorruptDataError, RunNotFoundError
from agentruns.testing import samples
from agentruns.testing.stories import OUTPUT, STORIES, USAGE


def intent_of(_digest: Digest, body: bytes) -> AgentAdmissionIntent:
    return decode(body, AgentAdmissionIntent)


def component(ends: RunEnds) -> tuple[str, str]:
    with pytest.raises(CorruptDataError) as found:
        show(verify_ends(ends, intent_of))
    return found.value.component, found.value.reason


@pytest.mark.parametrize("name", sorted(STORIES))
def test_every_story_verifies(record_of: Any, name: str) -> None:
    record = record_of(name)
    shown = show(verify_ends(record.read(), intent_of))
    assert (shown.status, shown.revision) == (STORIES[name][1], record.story.state.revision)
    if shown.status is RunStatus.SUCCEEDED:
        outcome: Any = shown.outcome
        assert (outcome.result.output, outcome.result.usage) == (OUTPUT, USAGE)


def test_a_run_that_is_not_there_is_not_corrupt(record_of: Any) -> None:
    nothing = dict.fromkeys(("run", "admitted", "attached", "admission", "first"))
    record = record_of("fresh")
    with pytest.raises(RunNotFoundError) as missing:
        verify_ends(record.read(**nothing), intent_of)
    assert missing.value.id == record.request.run_id
    with pytest.raises(AgentSubmissionNotFoundError):
        verify_ends(record.read(**nothing, run_id=None), intent_of)


def test_a_journal_that_does_not_begin_with_an_admission(record_of: Any) -> None:
    record = record_of("fresh")
    data = TimerFired(wait_id=WaitId.generate(), revision=RunRevision(1))
    other = evolve(record.events[0], kind=data.kind.text, schema_digest=data.kind.document.digest, data=data.encode())
    record.begin_with(record.first, [other])
    assert component(record.read()) == ("order", "")


def test_an_event_of_a_kind_that_this_release_does_not_know(record_of: Any) -> None:
    record = record_of("fresh")
    record.begin_with(record.first, [evolve(record.events[0], schema_digest=Digest(bytes(32)))])
    assert component(record.read()) == ("kind", "unsupported_schema")


def test_a_run_id_that_is_none_is_corrupt_and_named_as_it_stands(record_of: Any) -> None:
    with pytest.raises(CorruptDataError) as found:
        verify_ends(record_of("fresh").read(run_id="no id"), intent_of)
    assert (found.value.component, found.value.run_id) == ("run_events", "no id")


def test_an_admission_of_another_run(record_of: Any) -> None:
    record = record_of("fresh")
    graph = record.story.graph
    other = samples.admission_request(2, graph=graph.definition.reference)
    first = AdmissionDraft.of(other, graph).build(record.first.recorded_at)
    record.begin_with(first, [evolve(first.events[0], run_id=record.request.run_id)])
    record.story.state = first.state
    assert component(record.read()) == ("admission", "cross_tenant_reference")


def test_a_waiting_run_whose_barrier_did_not_wait(record_of: Any) -> None:
    record = record_of("between")
    digest = Digest(bytes(32))
    event = record.append(
        InterruptResolved(wait_id=WaitId.generate(), revision=RunRevision(2), resolution_digest=digest)
    )
    row = record.run_row(status="waiting", revision=2, lifecycle_sequence=event.sequence.value, scheduler_ready_at=None)
    waiting = StoredWait(
        wait_id="x", kind="sleep", digest=bytes(32), sequence=1, registration_digest=bytes(32), is_settled=False
    )
    row = evolve(row, changed_at=event.recorded_at.to_datetime())
    assert component(record.read(run=row, waits=(waiting,))) == ("waits", "")


def test_an_outcome_of_another_kind_than_the_end(record_of: Any) -> None:
    record = record_of("between")
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
        changed_at=event.recorded_at.to_datetime(),
        lifecycle_sequence=event.sequence.value,
        scheduler_ready_at=None,
    )
    stored = StoredOutcome(digest=outcome.digest.raw, sequence=event.sequence.value, body=outcome.canonical)
    assert component(record.read(run=row, outcome=stored)) == ("outcome", "")


def test_a_cancellation_that_another_event_names(record_of: Any) -> None:
    record = record_of("cancelling")
    ends = record.read()
    assert ends.cancellation is not None
    moved = evolve(ends.cancellation, sequence=1)
    assert component(evolve(ends, cancellation=moved)) == ("cancellation", "")


def test_an_end_that_its_transition_does_not_name(record_of: Any) -> None:
    run = verify_ends(record_of("failed").read(), intent_of)
    elsewhere = evolve(run, lifecycle=evolve(run.lifecycle, transition=run.journal.at(1)))
    with pytest.raises(CorruptDataError) as found:
        show(elsewhere)
    assert found.value.component == "outcome"


def test_another_admission_in_the_row_however_well_its_columns_fit(record_of: Any) -> None:
    record = record_of("fresh")
    limits = BudgetLimits.of(tool_calls=3)
    other = samples.admission_request(
        graph=record.request.intent.graph, request=samples.agent_request(budget_limits=limits)
    )
    row = evolve(record.admission_row(), body=other.intent.canonical, admission_digest=other.intent.digest.raw)
    assert component(record.read(admission=row)) == ("admission", "")


def test_another_outcome_under_the_digest_that_the_event_names(record_of: Any) -> None:
    record = record_of("failed")
    ends = record.read()
    assert ends.outcome is not None
    other = StoredFailure(failure=samples.failure(message="something else"), usage=USAGE)
    assert component(evolve(ends, outcome=evolve(ends.outcome, body=other.canonical))) == ("body", "")
