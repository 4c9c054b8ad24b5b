"""Read what was verified: every column that load reads is held against the evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest
from attrs import define, evolve, field
from sqlalchemy import BigInteger, Connection, DateTime, Table, Text, Uuid, func, insert, text, update
from sqlalchemy.dialects.postgresql import BYTEA

from agentruns.domain.artifacts import AgentArtifacts
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.results import (
    ContinueControl,
    NodeControl,
    NodeFailure,
    NodeResult,
    TerminalControl,
    Unchanged,
    WaitControl,
)
from agentruns.domain.ids import AttemptId, CheckpointId, EventId, QuarantineId, RunId, WaitId
from agentruns.domain.ledger.drafts import (
    AdmissionDraft,
    BarrierIds,
    CancellationDraft,
    CancellationRequestDraft,
    Completion,
    DraftedCommit,
    FailureDraft,
    FiringDraft,
    Start,
    SuccessDraft,
    SuperstepDraft,
    WaitDraft,
)
from agentruns.domain.ledger.outcomes import CancellationRequest, StoredCancellation, StoredFailure, StoredSuccess
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.payload import JournalPayload
from agentruns.domain.quarantine import Quarantine, QuarantineCause
from agentruns.domain.scalars import JournalEventKind, NodeId, TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.waits import NodeWait
from agentruns.errors import (
    AgentRunsError,
    AgentSubmissionNotFoundError,
    CorruptDataError,
    RunNotFoundError,
)
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store import tables
from agentruns.store.ends import MAXIMUM_BODY_BYTES, Ends
from agentruns.store.options import StoreOptions
from agentruns.testing import samples

Run = Callable[[Coroutine[Any, Any, Any]], Any]

EPOCH = FencingEpoch(1)
OUTPUT = {"answer": 42}
USAGE = BudgetUsage.of(graph_steps=2, input_bytes=64, output_bytes=64)


@define
class Story:
    """Bring a run somewhere by the rules of the fold, and write the rows behind the library's back."""

    graph: ExecutableGraph
    state: RunState
    commits: list[DraftedCommit] = field(factory=list)

    def _commit(self, draft: Any) -> None:
        assert self.state.head is not None
        commit = draft.build(self.state.head.recorded_at.plus_micros(1_000))
        self.commits.append(commit)
        self.state = commit.state

    def start(self, node: str) -> None:
        starts = (Start(node_id=NodeId(node), event_id=EventId.generate(), attempt_id=AttemptId.generate()),)
        self._commit(SuperstepDraft(state=self.state, graph=self.graph, epoch=EPOCH, starts=starts))

    def complete(self, node: str, body: NodeResult | NodeFailure, *, goes_on: bool = False) -> None:
        done = (Completion(node_id=NodeId(node), event_id=EventId.generate(), body=body),)
        ids = BarrierIds(event_id=EventId.generate(), checkpoint_id=CheckpointId.generate()) if goes_on else None
        self._commit(SuperstepDraft(state=self.state, graph=self.graph, epoch=EPOCH, completions=done, barrier=ids))

    def drive(self) -> None:
        """Node a is over, node b begins."""
        self.start("a")
        self.complete("a", result(ContinueControl()), goes_on=True)
        self.start("b")

    def succeed(self) -> None:
        self.drive()
        self.complete("b", result(TerminalControl(output=BoundedJson.of(OUTPUT))))
        outcome = StoredSuccess(output=BoundedJson.of(OUTPUT), artifacts=AgentArtifacts(), usage=USAGE)
        self._commit(
            SuccessDraft(
                state=self.state,
                graph=self.graph,
                epoch=EPOCH,
                event_id=EventId.generate(),
                checkpoint_id=CheckpointId.generate(),
                outcome=outcome,
            )
        )

    def fail(self) -> None:
        self.start("a")
        self.complete("a", NodeFailure(failure=samples.failure(), usage=BudgetUsage.zero()))
        outcome = StoredFailure(failure=samples.failure(), usage=USAGE)
        ids = {"event_id": EventId.generate(), "epoch": EPOCH}
        self._commit(FailureDraft(state=self.state, graph=self.graph, outcome=outcome, **ids))

    def wait(self) -> None:
        self.start("a")
        request = JournalPayload(
            schema=samples.schema_reference("anything"), kind=JournalEventKind("ask"), data=BoundedJson.of(1)
        )
        waits = (
            NodeWait.interrupt("approval", request=request, expires_in=timedelta(hours=1)),
            NodeWait.timer(due_in=timedelta(0)),
        )
        self.complete("a", result(WaitControl(waits=waits)))
        ids = {"event_id": EventId.generate(), "checkpoint_id": CheckpointId.generate()}
        self._commit(WaitDraft(state=self.state, graph=self.graph, epoch=EPOCH, **ids))

    def fire(self) -> None:
        timer = self.state.waits[-1].wait_id
        self._commit(FiringDraft(state=self.state, event_id=EventId.generate(), wait_id=timer))

    def request_cancellation(self) -> None:
        request = CancellationRequest(failure=samples.cancellation())
        self._commit(CancellationRequestDraft(state=self.state, event_id=EventId.generate(), request=request))

    def confirm(self) -> None:
        outcome = StoredCancellation(usage=USAGE)
        self._commit(CancellationDraft(state=self.state, epoch=EPOCH, event_id=EventId.generate(), outcome=outcome))


def result(control: NodeControl) -> NodeResult:
    return NodeResult(state_change=Unchanged(), control=control, bindings=(), usage=BudgetUsage.zero())


def fresh(_story: Story) -> None:
    """Nothing has happened yet."""


def between(story: Story) -> None:
    story.drive()


def quarantined(story: Story) -> None:
    story.drive()


def waiting(story: Story) -> None:
    story.wait()


def waiting_for_one(story: Story) -> None:
    story.wait()
    story.fire()


def cancelling(story: Story) -> None:
    story.drive()
    story.request_cancellation()


def cancelling_from_wait(story: Story) -> None:
    story.wait()
    story.request_cancellation()


def cancelled(story: Story) -> None:
    story.drive()
    story.request_cancellation()
    story.confirm()


def succeeded(story: Story) -> None:
    story.succeed()


def failed(story: Story) -> None:
    story.fail()


STORIES: Final[dict[str, tuple[Callable[[Story], None], RunStatus]]] = {
    "fresh": (fresh, RunStatus.ACTIVE),
    "between": (between, RunStatus.ACTIVE),
    "quarantined": (quarantined, RunStatus.ACTIVE),
    "waiting": (waiting, RunStatus.WAITING),
    "waiting_for_one": (waiting_for_one, RunStatus.WAITING),
    "cancelling": (cancelling, RunStatus.CANCELLATION_REQUESTED),
    "cancelling_from_wait": (cancelling_from_wait, RunStatus.CANCELLATION_REQUESTED),
    "cancelled": (cancelled, RunStatus.CANCELLED),
    "succeeded": (succeeded, RunStatus.SUCCEEDED),
    "failed": (failed, RunStatus.FAILED),
}


def write(connection: Connection, commit: DraftedCommit) -> None:
    """Write the rows of a commit, as no statement of the library does it."""
    run = {"tenant_id": str(commit.state.tenant_id), "run_id": str(commit.state.run_id)}
    for event in commit.events:
        add(connection, tables.events, run, event, "sequence event_id recorded_at epoch kind schema_digest data digest")
    for start in commit.starts:
        add(connection, tables.attempts, run, start, "superstep node_id attempt attempt_id sequence")
    for each in commit.results:
        names = "superstep node_id attempt status body digest retry_not_before sequence"
        add(connection, tables.results, run, each, names)
    if commit.checkpoint is not None:
        names = "superstep checkpoint_id ready state digest sequence"
        add(connection, tables.checkpoints, run, commit.checkpoint, names)
    for wait in commit.waits:
        names = "wait_id kind registration digest due_at expires_at sequence"
        add(connection, tables.waits, {**run, "status": "outstanding"}, wait, names)
    for settled in commit.settlements:
        names = "status settled_sequence resolution resolution_digest"
        change = values(settled, names)
        connection.execute(
            update(tables.waits)
            .where(tables.waits.c.run_id == run["run_id"], tables.waits.c.wait_id == str(settled.wait_id))
            .values(change)
        )
    if commit.outcome is not None:
        add(connection, tables.outcomes, run, commit.outcome, "kind body digest sequence")
    after = commit.projection
    change = values(after, "status revision changed_at lifecycle_sequence superstep checkpoint_digest")
    change |= {f"head_{name}": value for name, value in values(after.head, "sequence digest recorded_at").items()}
    ready_at = func.coalesce(tables.runs.c.scheduler_ready_at, plain(after.changed_at))
    change |= {"fencing_epoch": 1, "scheduler_ready_at": ready_at if after.status.is_claimable else None}
    connection.execute(update(tables.runs).where(tables.runs.c.run_id == run["run_id"]).values(change))


def add(connection: Connection, table: Table, run: dict[str, str], row: Any, names: str) -> None:
    connection.execute(insert(table).values({**run, **values(row, names)}))


def values(row: Any, names: str) -> dict[str, Any]:
    return {name: plain(getattr(row, name)) for name in names.split()}


def plain(value: Any) -> Any:
    """Write a scalar as its column holds it."""
    if isinstance(value, Timestamp):
        return value.to_datetime()
    for attribute in ("raw", "value", "text"):
        if hasattr(value, attribute):
            return getattr(value, attribute)
    return value


def isolate(connection: Connection, state: RunState) -> None:
    """Quarantine a run."""
    record = Quarantine(
        quarantine_id=QuarantineId.generate(),
        cause=QuarantineCause.OPERATOR_POLICY,
        component="chain",
        evidence_digest=plain_digest(b"{}"),
        epoch=EPOCH,
    )
    now = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    connection.execute(
        insert(tables.quarantines).values(
            tenant_id=str(state.tenant_id),
            run_id=str(state.run_id),
            quarantine_id=str(record.quarantine_id),
            quarantined_at=now,
            cause_kind=record.cause.value,
            component=record.component,
            body=record.canonical,
            digest=record.digest.raw,
            epoch=1,
        )
    )
    connection.execute(update(tables.runs).where(tables.runs.c.run_id == str(state.run_id)).values(quarantined_at=now))


@define
class Told:
    """A run that a story has brought somewhere."""

    key: AgentSubmissionKey
    request: Any
    story: Story
    origin: str

    @property
    def tenant_id(self) -> TenantId:
        return self.story.state.tenant_id

    @property
    def run_id(self) -> RunId:
        return self.story.state.run_id


async def tell(kit: Any, runs: Any, name: str, *, is_attached: bool = False) -> Told:
    """Submit a run and bring it where the story leads."""
    key, request = AgentSubmissionKey.generate(), kit.request()
    if is_attached:
        await runs.admit(request)
    admitted = await runs.submit(key, request)
    graph = kit.executables.resolve(kit.graph.definition_digest)
    first = AdmissionDraft.of(request, graph).build(admitted.snapshot.admitted_at)
    story = Story(graph, first.state)
    STORIES[name][0](story)

    def rows(connection: Connection) -> None:
        for commit in story.commits:
            write(connection, commit)
        if name == "quarantined":
            isolate(connection, story.state)

    async with kit.engine() as engine, engine.begin() as connection:
        await connection.run_sync(rows)
    return Told(key, request, story, "attached" if is_attached else "admitted")


# --- what load shows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORIES)
def test_SUB_18_load_and_load_by_key_agree_in_every_status(kit: Any, run: Run, name: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            told = await tell(kit, runs, name)
            state = told.story.state
            shown = await runs.load(told.tenant_id, told.run_id)
            assert await runs.load_by_key(told.tenant_id, told.key) == shown
            assert (shown.status, shown.revision) == (STORIES[name][1], state.revision)
            assert (shown.changed_at, shown.quarantined) == (state.changed_at, name == "quarantined")
            assert shown.graph == kit.graph.reference
            assert (shown.outcome is None) is not shown.status.is_terminal
            for other in (TenantId("tenant-b"), TenantId("tenant"), TenantId("TENANT-A")):
                await not_found(runs, other, told.run_id, told.key)
            await not_found(runs, told.tenant_id, RunId.generate(), AgentSubmissionKey.generate())

    run(work())


async def not_found(runs: Any, tenant_id: TenantId, run_id: RunId, key: AgentSubmissionKey) -> None:
    with pytest.raises(RunNotFoundError) as missing:
        await runs.load(tenant_id, run_id)
    assert (missing.value.tenant_id, missing.value.id) == (tenant_id, run_id)
    with pytest.raises(AgentSubmissionNotFoundError) as unknown:
        await runs.load_by_key(tenant_id, key)
    assert (unknown.value.tenant_id, unknown.value.id) == (tenant_id, None)


@pytest.mark.parametrize("name", STORIES)
def test_SUB_05_a_retry_is_idempotent_in_every_status(kit: Any, run: Run, name: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            told = await tell(kit, runs, name)
            before = await kit.rows()
            shown = await runs.load(told.tenant_id, told.run_id)
            for request in (told.request, kit.request()):
                again = await runs.submit(told.key, request)
                assert (again.outcome, again.snapshot) == (MutationOutcome.IDEMPOTENT, shown)
                async with engine.begin() as connection:
                    assert await runs.submit(told.key, request, session=connection) == again
            assert await kit.rows() == before

    run(work())


def test_SUB_05_the_stories_reach_every_status() -> None:
    assert {status for _, status in STORIES.values()} == set(RunStatus) - {RunStatus.PENDING}


def test_the_outcomes_are_those_of_the_record(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            told = await tell(kit, runs, "succeeded")
            outcome = (await runs.load(told.tenant_id, told.run_id)).outcome
            assert outcome.result.output.value == OUTPUT
            assert outcome.result.usage == USAGE
            assert outcome.result.completed_at == told.story.state.changed_at
            told = await tell(kit, runs, "failed")
            assert (await runs.load(told.tenant_id, told.run_id)).outcome.failure == samples.failure()
            told = await tell(kit, runs, "cancelled")
            assert (await runs.load(told.tenant_id, told.run_id)).outcome.failure == samples.cancellation()

    run(work())


def test_wait_gives_the_end_or_what_was_seen_last(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            active, over = await tell(kit, runs, "between"), await tell(kit, runs, "succeeded")
            shown = await runs.wait(active.tenant_id, active.run_id, timeout=timedelta(milliseconds=200))
            assert shown == await runs.load(active.tenant_id, active.run_id)
            ended = await runs.wait(over.tenant_id, over.run_id, timeout=timedelta(seconds=30))
            assert ended.status is RunStatus.SUCCEEDED
            with pytest.raises(RunNotFoundError):
                await runs.wait(over.tenant_id, RunId.generate(), timeout=timedelta(seconds=30))

    run(work())


# --- every column is covered ---------------------------------------------------------------------------------------------

#: Altered within their checks, these change nothing that is shown.
OUTSIDE: Final = {
    ("runs", "fencing_epoch"),
    ("runs", "lease_attempt_id"),
    ("runs", "lease_acquired_at"),
    ("runs", "lease_renewed_at"),
    ("runs", "lease_expires_at"),
    ("runs", "trace_context"),
    ("runs", "scheduler_ready_at"),
    ("runs", "scheduler_not_before"),
    ("run_waits", "kind"),
    ("run_waits", "due_at"),
    ("run_waits", "expires_at"),
    ("attached", "created_at"),
}
#: The place of a run's key, by whether the key came with the admission or later. Altered, the key stands for nothing,
#: which its holder alone can know.
LOST_BY_KEY: Final = {
    "admitted": {("admitted", "tenant_id"), ("admitted", "key_digest")},
    "attached": {("attached", "tenant_id"), ("attached", "key_digest")},
}
#: By the run's id nothing says that the run had this key.
LOST_BY_RUN: Final = {
    "admitted": {("admitted", "key_digest")},
    "attached": {("attached", name) for name in ("tenant_id", "run_id", "origin", "key_digest")},
}


def rows_read(story: Story) -> Iterator[tuple[str, Table, str]]:
    """Name the rows that load reads whole: a label, the table, and the condition that finds the row."""
    state, ends = story.state, {1}
    yield "runs", tables.runs, "true"
    yield "admitted", tables.keys, "origin = 'admitted'"
    yield "attached", tables.keys, "origin = 'attached'"
    yield "agent_admissions", tables.admissions, "true"
    yield "run_checkpoints", tables.checkpoints, "superstep = 0"
    if state.superstep.value:
        yield "run_checkpoints", tables.checkpoints, f"superstep = {state.superstep}"
    assert state.checkpoint is not None
    assert state.head is not None
    assert state.lifecycle_sequence is not None
    ends |= {state.checkpoint.sequence.value, state.head.sequence.value, state.lifecycle_sequence.value}
    ends |= {row.outcome.sequence.value for row in story.commits if row.outcome is not None}
    for sequence in sorted(ends):
        yield "run_events", tables.events, f"sequence = {sequence}"
    yield "cancellation", tables.outcomes, "kind = 'cancellation'"
    yield "outcome", tables.outcomes, "kind = 'outcome'"
    yield "run_waits", tables.waits, "status = 'outstanding' AND kind = 'approval'"
    yield "run_waits", tables.waits, "status = 'outstanding' AND kind = 'sleep'"
    yield "run_quarantines", tables.quarantines, "true"


def altered(column: Any) -> str:
    """Write an expression that gives another value of the same type."""
    name = column.name
    if name == "tenant_id":
        return "'tenant-b'"
    other = {
        Uuid: f"'{WaitId.generate()}'::uuid",
        BYTEA: f"coalesce(set_byte({name}, 0, get_byte({name}, 0) # 1), '\\x01'::bytea)",
        BigInteger: f"coalesce({name} + 100, 100)",
        DateTime: f"coalesce({name} + interval '1 microsecond', clock_timestamp())",
        Text: f"coalesce({name} || 'x', 'x')",
    }
    return next(expression for kind, expression in other.items() if isinstance(column.type, kind))


async def drop_checks(connection: Any) -> None:
    """Take away what would refuse the damage: triggers and constraints. The transaction is rolled back."""
    await connection.execute(text("SET LOCAL session_replication_role = replica"))
    found = await connection.execute(
        text(
            "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint"
            " WHERE contype = 'c' AND connamespace = 'agentruns'::regnamespace"
        )
    )
    for statement in found.scalars().all():
        await connection.execute(text(statement))


@pytest.mark.parametrize("name", STORIES)
def test_SUB_17_each_altered_column_is_found(kit: Any, run: Run, name: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, engine.connect() as connection:
            told = await tell(kit, runs, name, is_attached=name in ("fresh", "succeeded"))
            shown = await runs.load(told.tenant_id, told.run_id)
            await connection.begin()
            await drop_checks(connection)
            covered = 0
            for label, table, condition in rows_read(told.story):
                for column in table.c:
                    covered += await one_column(runs, connection, told, shown, (label, table, condition), column)
            assert covered > 50

    run(work())


async def one_column(
    runs: Any, connection: Any, told: Told, shown: Any, row: tuple[str, Table, str], column: Any
) -> int:
    """Alter one column of one row, look, and undo it."""
    label, table, condition = row
    place = (label, column.name)
    async with connection.begin_nested() as savepoint:
        statement = f"UPDATE agentruns.{table.name} SET {column.name} = {altered(column)} WHERE {condition}"  # noqa: S608
        done = await connection.execute(text(statement))
        if not done.rowcount:
            await savepoint.rollback()
            return 0
        where = f"{label}.{column.name} of {condition}"
        if place in OUTSIDE:
            await harmless(runs, connection, told, shown, where)
        else:
            await is_found(runs, connection, told, shown, place, where)
        await savepoint.rollback()
    return 1


async def harmless(runs: Any, connection: Any, told: Told, shown: Any, where: str) -> None:
    """Altered within its checks the column changes nothing; otherwise it is found."""
    try:
        assert await runs.load(told.tenant_id, told.run_id, session=connection) == shown, where
    except CorruptDataError as error:
        assert error.component.startswith("runs."), where


async def is_found(runs: Any, connection: Any, told: Told, shown: Any, place: tuple[str, str], where: str) -> None:
    if place in LOST_BY_RUN[told.origin]:
        assert await runs.load(told.tenant_id, told.run_id, session=connection) == shown, where
    else:
        await is_corrupt(runs.load(told.tenant_id, told.run_id, session=connection), told, where)
    if place in LOST_BY_KEY[told.origin]:
        with pytest.raises(AgentSubmissionNotFoundError):
            await runs.load_by_key(told.tenant_id, told.key, session=connection)
        return
    await is_corrupt(runs.load_by_key(told.tenant_id, told.key, session=connection), told, where)
    await is_corrupt(runs.submit(told.key, told.request, session=connection), told, where)
    state = evolve(told.request.initial_state, data=BoundedJson.of({"other": 1}))
    other = evolve(told.request, initial_state=state)
    if place[0] in ("outcome", "cancellation"):
        return  # how a run ended is verified after the conflict
    await is_corrupt(runs.submit(told.key, other, session=connection), told, where)


async def is_corrupt(call: Coroutine[Any, Any, Any], told: Told, where: str) -> None:
    try:
        answer: object = await call
    except CorruptDataError as error:
        assert error.component, where  # noqa: PT017
        assert error.tenant_id == told.tenant_id, where  # noqa: PT017
        return
    except AgentRunsError as error:
        answer = error
    pytest.fail(f"{where} was not found: {answer!r}")


# --- rows that are missing, extra or misshapen ------------------------------------------------------------------------------

LEASE: Final = (
    "fencing_epoch = 1, lease_attempt_id = '01980000-0000-7000-8000-000000000001', lease_acquired_at = changed_at,"
    " lease_renewed_at = changed_at, lease_expires_at = changed_at + interval '1 second'"
)
#: A story, what is done to it, and the component that the finding names.
DAMAGES: Final = [
    ("between", "UPDATE run_checkpoints SET digest = sha256('x') WHERE superstep = 0", "run_checkpoints.digest"),
    ("between", "UPDATE run_events SET digest = sha256('x') WHERE sequence = 4", "chain"),
    ("between", "DELETE FROM run_checkpoints WHERE superstep = 0", "run_checkpoints"),
    ("succeeded", "DELETE FROM run_checkpoints WHERE superstep = 1", "run_checkpoints"),
    ("between", "DELETE FROM run_events WHERE sequence = 1", "run_events"),
    ("between", "DELETE FROM run_events WHERE sequence = 4", "run_events"),
    ("between", "DELETE FROM run_events WHERE sequence = 5", "run_events"),
    ("between", "DELETE FROM runs", "runs"),
    ("between", "DELETE FROM agent_admissions", "agent_admissions"),
    ("between", "DELETE FROM agent_submission_keys", "agent_submission_keys"),
    ("cancelled", "DELETE FROM run_outcomes WHERE kind = 'outcome'", "run_outcomes"),
    ("cancelled", "DELETE FROM run_outcomes WHERE kind = 'cancellation'", "run_outcomes"),
    ("succeeded", "UPDATE run_outcomes SET kind = 'cancellation'", "run_outcomes"),
    ("waiting", "DELETE FROM run_waits WHERE kind = 'sleep'", "waits"),
    ("waiting", "DELETE FROM run_waits", "waits"),
    ("waiting_for_one", "UPDATE run_waits SET status = 'outstanding', settled_sequence = NULL", "waits"),
    ("cancelling_from_wait", "UPDATE run_waits SET status = 'outstanding', settled_sequence = NULL", "waits"),
    ("waiting", "UPDATE run_waits SET settled_sequence = 9 WHERE kind = 'sleep'", "run_waits.settled_sequence"),
    ("quarantined", "DELETE FROM run_quarantines", "runs.quarantined_at"),
    ("quarantined", "UPDATE runs SET quarantined_at = NULL", "runs.quarantined_at"),
    ("quarantined", f"UPDATE runs SET {LEASE}", "runs.lease_attempt_id"),
    ("between", "UPDATE runs SET fencing_epoch = 0", "runs.fencing_epoch"),
    ("between", f"UPDATE runs SET {LEASE}; UPDATE runs SET lease_expires_at = NULL", "runs.lease_attempt_id"),
    ("between", f"UPDATE runs SET {LEASE}", None),
    ("between", f"UPDATE runs SET {LEASE}; UPDATE runs SET lease_expires_at = changed_at", "runs.lease_expires_at"),
    (
        "between",
        f"UPDATE runs SET {LEASE}; UPDATE runs SET lease_acquired_at = lease_expires_at",
        "runs.lease_expires_at",
    ),
    (
        "between",
        f"UPDATE runs SET {LEASE}; UPDATE runs SET lease_attempt_id = gen_random_uuid()",
        "runs.lease_attempt_id",
    ),
    ("between", f"UPDATE runs SET {LEASE}; UPDATE runs SET lease_expires_at = 'infinity'", "runs.lease_expires_at"),
    ("waiting", f"UPDATE runs SET {LEASE}", "runs.lease_attempt_id"),
    ("between", "UPDATE runs SET scheduler_ready_at = NULL", "runs.scheduler_ready_at"),
    (
        "between",
        "UPDATE runs SET scheduler_ready_at = scheduler_ready_at - interval '1 second'",
        "runs.scheduler_ready_at",
    ),
    ("succeeded", "UPDATE runs SET scheduler_ready_at = changed_at", "runs.scheduler_ready_at"),
    ("between", "UPDATE runs SET scheduler_not_before = scheduler_ready_at", None),
    (
        "between",
        "UPDATE runs SET scheduler_not_before = scheduler_ready_at - interval '1 s'",
        "runs.scheduler_not_before",
    ),
    ("between", f"UPDATE runs SET {LEASE}, scheduler_not_before = now() + interval '1 d'", "runs.scheduler_not_before"),
    ("succeeded", "UPDATE runs SET scheduler_not_before = now()", "runs.scheduler_not_before"),
    ("between", "UPDATE runs SET status = 'pending'", "status"),
    ("between", "UPDATE runs SET status = 'unheard'", "runs.status"),
    ("between", "UPDATE runs SET changed_at = 'infinity'", "runs.changed_at"),
    ("between", "UPDATE runs SET superstep = NULL, checkpoint_digest = NULL", "runs.superstep"),
    ("between", "UPDATE runs SET graph_definition_digest = NULL", "runs.graph_definition_digest"),
    ("between", "UPDATE runs SET agent_deadline_at = NULL", "runs.agent_deadline_at"),
    ("between", "UPDATE runs SET lifecycle_sequence = 5", "status"),
    ("between", 'UPDATE run_checkpoints SET ready = \'["b", "a"]\' WHERE superstep = 1', "run_checkpoints"),
    ("between", "UPDATE run_checkpoints SET ready = '\"b\"' WHERE superstep = 1", "run_checkpoints.ready"),
    ("between", "UPDATE agent_admissions SET body = ''", "body"),
    (
        "quarantined",
        "INSERT INTO run_quarantines SELECT tenant_id, run_id, '01980000-0000-7000-8000-000000000001', quarantined_at,"
        " cause_kind, component, body, digest, epoch FROM run_quarantines",
        "run_quarantines",
    ),
    (
        "between",
        "INSERT INTO run_events SELECT tenant_id, run_id, 9, event_id, recorded_at, epoch, kind, schema_digest, data,"
        " digest FROM run_events WHERE sequence = 5",
        "runs.head_sequence",
    ),
    (
        "between",
        "INSERT INTO run_checkpoints SELECT tenant_id, run_id, 2, checkpoint_id, ready, state, digest, sequence"
        " FROM run_checkpoints WHERE superstep = 1",
        "run_checkpoints.digest",
    ),
]


@pytest.mark.parametrize(("name", "damage", "component"), DAMAGES, ids=lambda each: str(each)[:60])
def test_SUB_17_missing_extra_and_misshapen_rows_are_found(
    kit: Any, run: Run, name: str, damage: str, component: str | None
) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, engine.connect() as connection, connection.begin():
            told = await tell(kit, runs, name)
            shown = await runs.load(told.tenant_id, told.run_id)
            await drop_checks(connection)
            await connection.execute(text("SET LOCAL search_path = agentruns"))
            for statement in damage.split("; "):
                assert (await connection.execute(text(statement))).rowcount > 0
            if component is None:
                assert await runs.load(told.tenant_id, told.run_id, session=connection) == shown
                return
            with pytest.raises(CorruptDataError) as found:
                await runs.load(told.tenant_id, told.run_id, session=connection)
            assert (found.value.component, found.value.run_id) == (component, told.run_id)

    run(work())


def test_a_released_quarantine_is_over(kit: Any, run: Run) -> None:
    release = (
        "INSERT INTO agentruns.run_quarantine_releases SELECT tenant_id, run_id, quarantine_id, clock_timestamp(),"
        " body, digest FROM agentruns.run_quarantines"
    )

    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            told = await tell(kit, runs, "quarantined")
            assert (await runs.load(told.tenant_id, told.run_id)).quarantined
            async with engine.begin() as connection:
                await connection.execute(text(release))
                await connection.execute(text("UPDATE agentruns.runs SET quarantined_at = NULL"))
            assert not (await runs.load(told.tenant_id, told.run_id)).quarantined

    run(work())


# --- a set --------------------------------------------------------------------------------------------------------------------


def test_loads_that_wait_together_share_a_statement_and_each_has_its_own_answer(
    kit: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url, StoreOptions(pool_size=1)) as store:
            runs = DurableAgentRuns(store, kit.executables)
            tenant = kit.request().tenant_id
            await runs.publish(tenant, kit.graph)
            told = [await tell(kit, runs, name) for name in ("fresh", "succeeded", "cancelled", "waiting")]
            shown = [await runs.load(tenant, each.run_id) for each in told]
            async with kit.engine() as engine, engine.begin() as connection:
                await connection.execute(text("SET LOCAL session_replication_role = replica"))
                damage = f"DELETE FROM agentruns.run_waits WHERE run_id = '{told[3].run_id}'"  # noqa: S608
                await connection.execute(text(damage))
            for limit, least, most in ((MAXIMUM_BODY_BYTES, 1, 12), (1, 12, 20)):
                monkeypatch.setitem(Ends.read.__kwdefaults__, "maximum_bytes", limit)
                sent = kit.sent(store._engine)
                calls = [runs.load(tenant, told[number % 4].run_id) for number in range(12)]
                calls += [runs.load_by_key(tenant, told[1].key), runs.load(tenant, RunId.generate())]
                *answers, by_key, missing = await asyncio.gather(*calls, return_exceptions=True)
                assert [each for number, each in enumerate(answers) if number % 4 != 3] == shown[:3] * 3
                assert all(isinstance(each, CorruptDataError) for each in answers[3::4])
                assert by_key == shown[1]
                assert isinstance(missing, RunNotFoundError)
                assert least <= len(sent) <= most

    run(work())
