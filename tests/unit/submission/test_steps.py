"""The order in which a submission is decided, without a database: evidence, then graph, then clock."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, evolve, field, frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.digests import Digest, plain_digest
from agentruns.domain.submission import AgentRunIds, MutationOutcome
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentAdmissionConflictError,
    AgentAdmissionRejectedError,
    AgentRunsError,
    AgentSubmissionConflictError,
    ContentionError,
    CorruptDataError,
    DatabaseClockRegressionError,
    ExecutableGraphUnavailableError,
    RunNotFoundError,
    UnitOfWorkError,
)
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.submission import submission_steps
from agentruns.store.ends import RunLookup
from agentruns.store.keys import KeyAttachment, ProbeAnswer, SubmissionProbe
from agentruns.testing import samples

NOW = Timestamp.parse("2026-01-02T03:04:05.000006Z")
DEADLINE = NOW.plus_micros(60_000_000)
KEY, OTHER_KEY, KEYLESS = plain_digest(b"key"), plain_digest(b"other"), plain_digest(b"keyless")
CONTENT, OTHER_CONTENT = plain_digest(b"content"), plain_digest(b"other content")
REQUEST = samples.admission_request()


@frozen
class Built:
    """Stand for an admission that was built at an instant."""

    admission: Any
    commit: Any = None


@frozen
class At:
    """Stand for an admission."""

    admitted_at: Timestamp


@frozen(kw_only=True)
class Prepared:
    """Stand for a prepared submission."""

    request: Any = REQUEST
    key_digest: Digest | None = KEY
    keyless_digest: Digest = KEYLESS
    submission_digest: Digest = CONTENT
    kept_error: AgentRunsError | None = None
    tenant_id: Any = REQUEST.tenant_id
    run_id: Any = REQUEST.run_id

    @property
    def probe(self) -> SubmissionProbe:
        graph = self.request.intent.graph.definition_digest
        return SubmissionProbe(
            tenant_id=self.tenant_id, run_id=self.run_id, key_digest=self.key_digest, graph_digest=graph
        )

    @property
    def lookup_by_key(self) -> RunLookup:
        return RunLookup(tenant_id=self.tenant_id, key_digest=self.key_digest)

    @property
    def lookup_by_run(self) -> RunLookup:
        return RunLookup(tenant_id=self.tenant_id, run_id=self.run_id)

    def stands_under_key_of(self, stored: Stored) -> bool:
        return self.key_digest is not None and stored.key_digest == self.key_digest

    def admit(self, admitted_at: Timestamp) -> None:
        if admitted_at >= DEADLINE:
            raise AgentAdmissionRejectedError(reason="deadline")

    def build(self, admitted_at: Timestamp) -> Built:
        self.admit(admitted_at)
        return Built(At(admitted_at))

    def fresh_snapshot(self, admission: At) -> tuple[str, Timestamp]:
        return ("fresh", admission.admitted_at)


@frozen(kw_only=True)
class Stored:
    """Stand for a verified run."""

    submission_digest: Digest = CONTENT
    key_digest: Digest | None = KEY
    ids: AgentRunIds = REQUEST.ids

    @property
    def has_key(self) -> bool:
        return self.key_digest is not None


@define
class Verifier:
    """Believe what is passed, or raise it."""

    def verify(self, ends: Stored | AgentRunsError) -> Stored:
        if isinstance(ends, AgentRunsError):
            raise ends
        return ends

    def expect(self, intent: AgentAdmissionIntent) -> None:
        assert intent is REQUEST.intent

    def snapshot(self, stored: Stored) -> tuple[str, Stored]:
        return ("stored", stored)


@define
class Database:
    """Answer the steps from a script, and write down what was asked."""

    script: list[Any]
    asked: list[str] = field(factory=list)
    clock: DatabaseClock = field(factory=lambda: DatabaseClock(lambda: 0.0))

    def submit(self, prepared: Prepared, *, is_joined: bool = False, observed: Timestamp | None = NOW) -> Any:
        if observed is not None:
            self.clock.correct(observed)
        made: Any = submission_steps
        steps = made(prepared, clock=self.clock, verifier=Verifier(), is_joined=is_joined)
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as done:
                assert self.script == []
                return done.value
            self.asked.append(_NAMES.get(type(step), "insert"))
            answer = self.script.pop(0)
            if isinstance(answer, ProbeAnswer):
                self.clock.observe(answer.now)


_NAMES = {SubmissionProbe: "probe", RunLookup: "ends", KeyAttachment: "attach"}
NOTHING = ProbeAnswer(now=NOW, is_read_only=False, has_key=False, has_candidate=False, has_graph=True)
BY_KEY, BY_RUN = evolve(NOTHING, has_key=True), evolve(NOTHING, has_candidate=True)


def raises(database: Database, error: type[AgentRunsError], prepared: Prepared, **options: Any) -> Any:
    with pytest.raises(error) as raised:
        database.submit(prepared, **options)
    assert database.script == []
    return raised.value


def test_a_fresh_submit_inserts_and_asks_nothing() -> None:
    database = Database([True])
    admitted = database.submit(Prepared())
    assert (admitted.outcome, admitted.snapshot) == (MutationOutcome.COMMITTED, ("fresh", NOW))
    assert database.asked == ["insert"]


@pytest.mark.parametrize(("is_joined", "observed"), [(True, NOW), (False, None)])
def test_joined_or_without_an_observation_the_probe_goes_first(*, is_joined: bool, observed: Timestamp | None) -> None:
    database = Database([NOTHING, True])
    admitted = database.submit(Prepared(), is_joined=is_joined, observed=observed)
    assert (admitted.outcome, database.asked) == (MutationOutcome.COMMITTED, ["probe", "insert"])


def test_what_stands_under_the_key_is_found_by_key() -> None:
    database = Database([False, evolve(BY_KEY, has_candidate=True), Stored()])
    admitted = database.submit(Prepared())
    assert (admitted.outcome, admitted.snapshot) == (MutationOutcome.IDEMPOTENT, ("stored", Stored()))
    assert database.asked == ["insert", "probe", "ends"]


def test_other_content_under_the_key_conflicts_before_everything_but_corruption() -> None:
    seen = evolve(BY_KEY, is_read_only=True, has_graph=False, now=DEADLINE)
    lacks = Prepared(kept_error=ExecutableGraphUnavailableError(reason="not_installed", graph=None))
    conflict = raises(Database([seen, Stored(submission_digest=OTHER_CONTENT)]), AgentSubmissionConflictError, lacks)
    assert (conflict.recorded_digest, conflict.offered_digest) == (OTHER_CONTENT, CONTENT)
    raises(Database([seen, CorruptDataError(component="chain")]), CorruptDataError, lacks)


def test_what_the_deployment_lacks_is_said_only_of_equal_and_of_fresh_content() -> None:
    lacks = Prepared(kept_error=ExecutableGraphUnavailableError(reason="not_installed", graph=None))
    for script in ([BY_KEY, Stored()], [BY_RUN, Stored(key_digest=None)], [NOTHING]):
        assert raises(Database(script), ExecutableGraphUnavailableError, lacks).reason == "not_installed"


def test_a_candidate_of_other_content_or_other_ids_is_a_conflict_of_the_admission() -> None:
    other_ids = evolve(REQUEST.ids, thread_id=AgentRunIds.generate().thread_id)
    for prepared in (Prepared(), Prepared(key_digest=None)):
        for stored in (
            Stored(submission_digest=OTHER_CONTENT, key_digest=None),
            Stored(ids=other_ids, key_digest=None),
        ):
            raises(Database([False, BY_RUN, stored]), AgentAdmissionConflictError, prepared)


def test_a_candidate_under_another_key_is_a_conflict_of_the_submission() -> None:
    raises(Database([False, BY_RUN, Stored(key_digest=OTHER_KEY)]), AgentSubmissionConflictError, Prepared())


def test_a_candidate_that_got_our_key_meanwhile_is_idempotent() -> None:
    assert Database([False, BY_RUN, Stored()]).submit(Prepared()).outcome is MutationOutcome.IDEMPOTENT


@pytest.mark.parametrize("key", [None, KEY])
def test_admit_is_idempotent_whether_the_run_has_a_key_or_not(key: Digest | None) -> None:
    database = Database([False, BY_RUN, Stored(key_digest=key)])
    assert database.submit(Prepared(key_digest=None)).outcome is MutationOutcome.IDEMPOTENT


def test_a_key_is_attached_and_a_lost_race_is_probed_again() -> None:
    keyless = Stored(key_digest=None)
    attached = Database([False, BY_RUN, keyless, True])
    admitted = attached.submit(Prepared())
    assert (admitted.outcome, admitted.snapshot) == (MutationOutcome.COMMITTED, ("stored", keyless))
    lost = Database([False, BY_RUN, keyless, False, BY_KEY, Stored()])
    assert lost.submit(Prepared()).outcome is MutationOutcome.IDEMPOTENT
    assert lost.asked == ["insert", "probe", "ends", "attach", "probe", "ends"]


def test_nothing_is_written_in_a_read_only_transaction() -> None:
    for script in ([evolve(NOTHING, is_read_only=True)], [evolve(BY_RUN, is_read_only=True), Stored(key_digest=None)]):
        assert raises(Database(script), UnitOfWorkError, Prepared(), is_joined=True).reason == "read_only"


def test_a_run_that_is_gone_when_its_evidence_is_read_starts_the_item_again() -> None:
    gone = RunNotFoundError(tenant_id=REQUEST.tenant_id, id=REQUEST.run_id)
    database = Database([False, BY_RUN, gone, NOTHING, True])
    assert database.submit(Prepared()).outcome is MutationOutcome.COMMITTED
    endless = Database([False] + [BY_RUN, gone] * 4)
    assert raises(endless, ContentionError, Prepared()).retryable


@pytest.mark.parametrize(
    ("seen", "error", "check"),
    [
        (evolve(NOTHING, has_graph=False, now=DEADLINE), ExecutableGraphUnavailableError, "not_registered"),
        (evolve(NOTHING, now=DEADLINE), AgentAdmissionRejectedError, "deadline"),
    ],
)
def test_graph_goes_before_clock(seen: ProbeAnswer, error: type[AgentRunsError], check: str) -> None:
    assert raises(Database([False, seen]), error, Prepared()).reason == check


def test_a_clock_that_went_back_is_said_so_and_believed_the_next_time() -> None:
    database = Database([False, evolve(NOTHING, now=NOW.plus_micros(-1))])
    regression = raises(database, DatabaseClockRegressionError, Prepared())
    assert (regression.observed, regression.recorded) == (NOW.plus_micros(-1), NOW)
    assert database.clock.stamp() == NOW.plus_micros(-1)


def test_after_the_deadline_nothing_is_inserted_but_evidence_is_looked_for() -> None:
    late = evolve(BY_KEY, now=DEADLINE)
    found = Database([late, Stored()])
    assert found.submit(Prepared(), observed=DEADLINE).outcome is MutationOutcome.IDEMPOTENT
    refused = Database([evolve(NOTHING, now=DEADLINE)])
    raises(refused, AgentAdmissionRejectedError, Prepared(), observed=DEADLINE)
    assert refused.asked == ["probe"]


@pytest.mark.parametrize(
    ("is_joined", "script"),
    [(False, [False, *[NOTHING, False] * 3, NOTHING]), (True, [*[NOTHING, False] * 4, NOTHING])],
)
def test_an_insert_that_nothing_explains_is_repeated_three_times(*, is_joined: bool, script: list[Any]) -> None:
    database = Database(list(script))
    assert raises(database, ContentionError, Prepared(), is_joined=is_joined).attempts == 3
    assert database.asked.count("insert") == 4


def test_a_repetition_is_stamped_with_the_newest_observation() -> None:
    later = NOW.plus_micros(5_000_000)
    database = Database([False, evolve(NOTHING, now=later), True])
    assert database.submit(Prepared()).snapshot == ("fresh", later)
