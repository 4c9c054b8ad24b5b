"""A database as release 15 left it: a thousand runs in every status, and a row in every table."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any, Final

import asyncpg
import pytest
from attrs import frozen
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import QuarantineId
from agentruns.domain.ledger.commit import DraftedCommit
from agentruns.domain.ledger.drafts import AdmissionDraft
from agentruns.domain.quarantine import Quarantine, QuarantineCause
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.testing import samples
from agentruns.testing.drives import builder, executables_of
from agentruns.testing.histories import BEGIN
from agentruns.testing.samples import TENANT
from agentruns.testing.stories import EPOCH, STORIES, Story

RUNS: Final = 1000

#: By the member of a commit that holds them: the table of the rows, and their columns.
_ROWS: Final = {
    "events": ("run_events", "sequence event_id recorded_at epoch kind schema_digest data digest"),
    "admission": ("agent_admissions", "agent_name agent_version body admission_digest sequence"),
    "starts": ("node_attempts", "superstep node_id attempt attempt_id sequence"),
    "results": ("node_results", "superstep node_id attempt status body digest retry_not_before sequence"),
    "checkpoint": ("run_checkpoints", "superstep checkpoint_id ready state digest sequence"),
    "outcome": ("run_outcomes", "kind body digest sequence"),
}
_IDS: Final = "thread_id invocation_id"
_PROJECTION: Final = (
    "status revision changed_at lifecycle_sequence superstep checkpoint_digest"
    " graph_definition_digest agent_deadline_at"
)
_HEAD: Final = "sequence digest recorded_at"
_SCHEDULED: Final = "fencing_epoch scheduler_ready_at quarantined_at"
_REGISTERED: Final = "wait_id kind registration digest due_at expires_at sequence"
_SETTLED: Final = "status settled_sequence resolution resolution_digest"
_QUARANTINED: Final = "quarantine_id cause_kind component body digest epoch quarantined_at"

#: A run that is older than checkpoints and admissions, and rows of the tables that no story fills.
_OLDER: Final = """
INSERT INTO agentruns.runs (tenant_id, run_id, thread_id, invocation_id, status, revision, changed_at,
  lifecycle_sequence, head_sequence, head_digest, head_recorded_at, fencing_epoch)
  VALUES (:run, :id, :id, 'active', 1, :at, 1, 1, :d, :at, 0);
INSERT INTO agentruns.tool_invocations VALUES (:run, :id, 0, 'a', 't', '1.0.0', 'read_only', '{}', 'prepared', 0);
INSERT INTO agentruns.tool_invocation_revisions VALUES (:run, :id, 0, 'prepared', NULL, NULL, NULL, 2);
INSERT INTO agentruns.model_invocations VALUES (:run, :id, 0, 'a', 'm', '1.0.0', '{}', 'prepared', 0);
INSERT INTO agentruns.model_invocation_revisions VALUES (:run, :id, 0, 'prepared', NULL, NULL, NULL, 2);
INSERT INTO agentruns.outbox_destinations VALUES (:tenant, :id, :d, 'web-hook', '{}', :at);
INSERT INTO agentruns.outbox_deliveries
  VALUES (:run, :id, :id, :d, '{}', :d, :at, 'delivering', 1, :at, :at, :at, 2);
INSERT INTO agentruns.outbox_attempts VALUES (:run, :id, 1, :id, :at, :at + interval '1 min');
INSERT INTO agentruns.outbox_results VALUES (:run, :id, 1, 'acknowledged', :at, NULL, '{}', :d);
INSERT INTO agentruns.run_quarantines VALUES (:run, :id, :at, 'operator_policy', 'chain', '{}', :d, 1);
INSERT INTO agentruns.run_quarantine_releases VALUES (:run, :id, :at, '{}', :d);
INSERT INTO agentruns.scheduler_fairness_shards VALUES ('shard', '{}', :d, 2, 1, 0);
INSERT INTO agentruns.scheduler_fairness_reservations VALUES ('shard', :id, 0, 0, :at);
INSERT INTO agentruns.tenant_limits VALUES (:tenant, 5, :at);
INSERT INTO agentruns.tenant_slots VALUES (:tenant, 0, :id, 1, 1);
"""
_OLDER_VALUES: Final = {
    ":run": ":tenant, :id",
    ":tenant": "'older'",
    ":id": "'0198c0de-0000-7000-8000-000000000001'",
    ":at": "'2026-01-02 03:04:05.000006+00'::timestamptz",
    ":d": "sha256('')",
}


@frozen
class EarlierRun:
    """A run of before.

    Attributes:
        request: what was asked.
        commits: what became of it, the admission first.
        name: of its story.
    """

    request: DurableAgentAdmissionRequest
    commits: list[DraftedCommit]
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return str(self.request.tenant_id), str(self.request.run_id)

    def row(self) -> tuple[Any, ...]:
        """Give its row among the runs."""
        after = self.commits[-1].projection
        ready_at = after.changed_at.to_datetime() if after.status.is_claimable else None
        quarantined_at = after.head.recorded_at.to_datetime() if self.name == "quarantined" else None
        return (
            *(*self.key, *values(self.request.ids, _IDS), *values(after, _PROJECTION), *values(after.head, _HEAD)),
            *(1, ready_at, quarantined_at),
        )

    def rows(self, member: str, columns: str) -> Iterator[tuple[Any, ...]]:
        """Give the rows that a member of its commits holds."""
        for commit in self.commits:
            found = getattr(commit, member)
            for row in found if isinstance(found, tuple) else [found] if found else []:
                yield (*self.key, *values(row, columns))

    def waits(self) -> Iterator[tuple[Any, ...]]:
        """Give its waits, settled or not."""
        settled = {each.wait_id: values(each, _SETTLED) for commit in self.commits for each in commit.settlements}
        for commit in self.commits:
            for wait in commit.waits:
                end = settled.get(wait.wait_id, ["outstanding", None, None, None])
                yield (*self.key, *values(wait, _REGISTERED), *end)

    def quarantine(self) -> tuple[Any, ...]:
        """Give the row that isolates it."""
        record = Quarantine(
            quarantine_id=QuarantineId.generate(),
            cause=QuarantineCause.OPERATOR_POLICY,
            component="chain",
            evidence_digest=plain_digest(b"{}"),
            epoch=EPOCH,
        )
        stated = values(record, "quarantine_id cause component canonical digest epoch")
        return (*self.key, *stated, self.commits[-1].recorded_at.to_datetime())


@frozen
class Earlier:
    """A database at 0015, its runs, and their graph."""

    database: str
    runs: list[EarlierRun]
    bundle: GraphBundle


def values(row: object, columns: str) -> list[Any]:
    return [plain(getattr(row, name)) for name in columns.split()]


def plain(value: Any) -> Any:
    """Give a scalar as its column holds it."""
    if isinstance(value, Timestamp):
        return value.to_datetime()
    for attribute in ("raw", "value", "text"):
        if hasattr(value, attribute):
            return getattr(value, attribute)
    return value


def graph_of_stories() -> GraphBundle:
    graph = builder()
    graph.node(name="a", entry=True, then="b", wait_to="b")(lambda _context: {"a": 1})
    graph.node(name="b", terminal=True)(lambda context: Finish({"b": context.state.get("a", 0) + 1}))
    return graph.build()


def told(bundle: GraphBundle) -> list[EarlierRun]:
    """Think out what became of the runs, each story as often as the others."""
    graph = bundle.graph
    executable = executables_of(bundle).resolve(graph.definition_digest)
    descriptor = samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema)
    asked = samples.agent_request(input={}, input_schema=graph.input_schema)
    runs = []
    for name, (play, _status) in islice(cycle(STORIES.items()), RUNS):
        request = samples.admission_request(
            ids=AgentRunIds.generate(),
            descriptor=descriptor,
            request=asked,
            budget_layers=(AgentAdmissionBudgetLayer.system_default(),),
            graph=graph.reference,
            initial_state=samples.graph_state({}, schema=graph.state_schema),
        )
        admission = AdmissionDraft.of(request, executable).build(BEGIN)
        story = Story(executable, admission.state)
        play(story)
        runs.append(EarlierRun(request, [admission, *story.commits], name))
    return runs


async def write(connection: asyncpg.Connection[Any], runs: list[EarlierRun]) -> None:
    """Write the rows, table by table."""

    async def copy(table: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
        names = ["tenant_id", "run_id", *columns.split()]
        await connection.copy_records_to_table(table, schema_name="agentruns", columns=names, records=rows)

    head = " ".join(f"head_{name}" for name in _HEAD.split())
    await copy("runs", f"{_IDS} {_PROJECTION} {head} {_SCHEDULED}", [run.row() for run in runs])
    for member, (table, columns) in _ROWS.items():
        await copy(table, columns, [row for run in runs for row in run.rows(member, columns)])
    await copy("run_waits", f"{_REGISTERED} {_SETTLED}", [row for run in runs for row in run.waits()])
    await copy("run_quarantines", _QUARANTINED, [run.quarantine() for run in runs if run.name == "quarantined"])
    older = _OLDER
    for name, value in _OLDER_VALUES.items():
        older = older.replace(name, value)
    await connection.execute(older)


async def build(url: str) -> tuple[list[EarlierRun], GraphBundle]:
    bundle = graph_of_stories()
    runs = told(bundle)
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(lambda synchronous: migrations.upgrade(synchronous, to="15"))
        driver: Any = (await connection.get_raw_connection()).driver_connection
        await write(driver, runs)
        await DurableAgentRuns(AgentRunStore(url), executables_of(bundle)).publish(TENANT, bundle.graph, connection)
    await engine.dispose()
    return runs, bundle


@pytest.fixture(scope="session")
def earlier(server: Any) -> Iterator[Earlier]:
    """The database that others are cloned from."""
    name = server.empty()
    runs, bundle = asyncio.run(build(server.url(name)))
    yield Earlier(name, runs, bundle)
    server.drop(name)


@pytest.fixture
def earlier_url(server: Any, earlier: Earlier) -> Iterator[str]:
    """A database of the test's own at 0015 with a thousand runs."""
    name = f"test_{os.getpid()}_earlier"
    server.execute(f"CREATE DATABASE {name} TEMPLATE {earlier.database}")
    yield server.url(name)
    server.drop(name)
