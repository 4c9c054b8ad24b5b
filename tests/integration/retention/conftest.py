"""Runs of any age and status, written by hand into every table of a run, and a role that may do what retention must."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from attrs import field, frozen
from sqlalchemy import Connection, Table, insert, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.digests import plain_digest
from agentruns.domain.ids import RunId, ThreadId
from agentruns.operations.retention import HeldRun, RetentionBatch, RetentionPolicy, plan_retention, remove_runs
from agentruns.orm import Base
from agentruns.runtime.engine import create_engine
from agentruns.store.options import StoreOptions
from agentruns.testing.samples import TENANT

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Work = Callable[[Connection], Any]

HOUR = timedelta(hours=1)
POLICY = RetentionPolicy(keep_succeeded=HOUR, keep_failed=HOUR, keep_cancelled=HOUR, retry_guarantee=HOUR)
TABLES: dict[str, Table] = {table.name: table for table in Base.metadata.sorted_tables}
OF_A_RUN = [name for name, table in TABLES.items() if "run_id" in table.columns and name != "tenant_slots"]
ROLE = f"agentruns_test_retention_{os.getpid()}"
BODY = b'{"n":1}'
ENDED = ("succeeded", "failed", "cancelled")


@frozen(kw_only=True)
class Sample:
    """A run, and since when it is over."""

    status: str = "succeeded"
    since: datetime = field(factory=lambda: datetime.now(UTC) - 2 * HOUR)
    quarantined_at: datetime | None = None
    events: int = 1
    tenant: str = TENANT.text
    run_id: str = field(factory=lambda: RunId.generate().text)

    @property
    def key(self) -> dict[str, str]:
        return {"tenant_id": self.tenant, "run_id": self.run_id}

    @property
    def digest(self) -> bytes:
        """A digest that no other run has."""
        return plain_digest(f"{self.tenant} {self.run_id}".encode()).raw

    def run_row(self) -> dict[str, Any]:
        is_claimable = self.status in ("active", "cancellation_requested")
        return {
            **self.key,
            "thread_id": ThreadId.generate().text,
            "invocation_id": ThreadId.generate().text,
            "status": self.status,
            "revision": 2,
            "changed_at": self.since,
            "lifecycle_sequence": 1,
            "head_sequence": self.events,
            "head_digest": self.digest,
            "head_recorded_at": self.since,
            "fencing_epoch": 1,
            "quarantined_at": self.quarantined_at,
            "superstep": 0,
            "checkpoint_digest": self.digest,
            "scheduler_ready_at": self.since if is_claimable else None,
            "graph_definition_digest": self.digest,
        }

    def rows(self) -> dict[str, dict[str, Any]]:
        """One row of every table of a run."""
        event = {**self.key, "sequence": 1}
        node = {**event, "superstep": 0, "node_id": "first", "attempt": 1}
        digested = {"body": BODY, "digest": self.digest}
        call = {**self.key, "invocation_id": self.run_id}
        place = {**call, "superstep": 0, "node_id": "first", "intent": BODY, "status": "executing", "number": 1}
        revision = {**call, "number": 1, "status": "executing", "attempt_id": self.run_id, "sequence": 1}
        delivery = {**self.key, "delivery_id": self.run_id}
        return {
            "runs": self.run_row(),
            "run_events": {
                **event,
                "event_id": self.run_id,
                "recorded_at": self.since,
                "epoch": 0,
                "kind": "agent-admitted",
                "schema_digest": self.digest,
                "data": BODY,
                "digest": self.digest,
            },
            "run_outcomes": {**event, "kind": "outcome", **digested},
            "run_checkpoints": {
                **event,
                "superstep": 0,
                "checkpoint_id": self.run_id,
                "ready": b"[]",
                "state": BODY,
                "digest": self.digest,
            },
            "tool_invocations": {**place, "tool_name": "t", "tool_version": "1.0.0", "risk": "read_only"},
            "tool_invocation_revisions": revision,
            "model_invocations": {**place, "model_name": "m", "model_version": "1.0.0"},
            "model_invocation_revisions": {**revision, "status": "committed", **digested},
            "node_results": {**node, "status": "succeeded", **digested},
            "node_attempts": {**node, "attempt_id": self.run_id},
            "outbox_deliveries": {
                **delivery,
                **digested,
                "destination_id": self.run_id,
                "destination_digest": self.digest,
                "sequence": 1,
                "expires_at": self.since,
                "status": "acknowledged",
                "attempts": 1,
                "updated_at": self.since,
            },
            "outbox_attempts": {
                **delivery,
                "attempt": 1,
                "attempt_id": self.run_id,
                "started_at": self.since,
                "expires_at": self.since + timedelta(minutes=5),
            },
            "outbox_results": {
                **delivery,
                **digested,
                "attempt": 1,
                "status": "acknowledged",
                "completed_at": self.since,
            },
            "run_waits": {
                **event,
                "wait_id": self.run_id,
                "kind": "approval",
                "registration": BODY,
                "digest": self.digest,
                "status": "resolved",
                "settled_sequence": 2,
                "resolution": BODY,
                "resolution_digest": self.digest,
            },
            "run_quarantines": {
                **self.key,
                **digested,
                "quarantine_id": self.run_id,
                "quarantined_at": self.since,
                "cause_kind": "operator_policy",
                "component": "operator",
                "epoch": 1,
            },
            "run_quarantine_releases": {
                **self.key,
                **digested,
                "quarantine_id": self.run_id,
                "released_at": self.since,
            },
            "agent_admissions": {
                **event,
                "agent_name": "a",
                "agent_version": "1.0.0",
                "body": BODY,
                "admission_digest": self.digest,
            },
            "agent_submission_keys": {
                **self.key,
                "key_digest": self.digest,
                "origin": "admitted",
                "submission_digest": self.digest,
                "created_at": self.since,
            },
        }


@frozen
class Archive:
    """One database: put runs into it, remove them, and look at what is left."""

    url: str
    run: Run

    def write(self, *samples: Sample, bare: bool = False, **changes: dict[str, Any]) -> None:
        """Insert runs with a row in every table, or only their row of ``runs``; changes are by table."""
        every = [sample.rows() if not bare else {"runs": sample.run_row()} for sample in samples]
        rows = {
            name: [{**of_run[name], **changes.get(name, {})} for of_run in every if name in of_run] for name in OF_A_RUN
        }

        def work(connection: Connection) -> None:
            for name, each in rows.items():
                if each:
                    connection.execute(insert(TABLES[name]), each)

        self.transaction(work)

    def steps(self, policy: RetentionPolicy = POLICY, **named: Any) -> list[RetentionBatch | HeldRun]:
        """Remove to the end, on a connection such as a store's, under the retention role where there is one."""
        named = named or {"tenant_id": TENANT}
        steps: list[RetentionBatch | HeldRun] = self.on_connection(
            lambda connection: list(remove_runs(connection, policy, **named))
        )
        return steps

    def plans(self, policy: RetentionPolicy = POLICY, **named: Any) -> list[Any]:
        named = named or {"tenant_id": TENANT}
        plans: list[Any] = self.on_connection(lambda connection: list(plan_retention(connection, policy, **named)))
        return plans

    def removed(self, policy: RetentionPolicy = POLICY, **named: Any) -> list[int]:
        """Remove to the end, and give how many runs each batch had; nothing may be held."""
        steps = self.steps(policy, **named)
        assert not [step for step in steps if isinstance(step, HeldRun)]
        return [step.run_count for step in steps if isinstance(step, RetentionBatch)]

    def on_connection(self, work: Work, *, role: str | None = None) -> Any:
        """Work on a connection of an engine as a store has one."""

        async def call() -> Any:
            url = make_url(self.url)
            engine = create_engine(url.set(username=role) if role else url, StoreOptions())
            try:
                async with engine.connect() as connection:
                    return await connection.run_sync(work)
            finally:
                await engine.dispose()

        return self.run(call())

    def transaction(self, work: Work) -> Any:
        """Work as a superuser, past triggers and keys."""

        async def call() -> Any:
            async with create_async_engine(self.url, poolclass=NullPool).begin() as connection:
                await connection.execute(text("SET LOCAL session_replication_role = replica"))
                return await connection.run_sync(work)

        return self.run(call())

    def execute(self, statement: str, **values: Any) -> list[Any]:
        def work(connection: Connection) -> list[Any]:
            result = connection.execute(text(statement), values)
            return list(result.all()) if result.returns_rows else []

        found: list[Any] = self.transaction(work)
        return found

    def everything(self) -> dict[str, list[str]]:
        """Read every row of every table as text."""
        each = "SELECT '{0}' AS name, t::text AS row FROM agentruns.{0} AS t"
        rows = self.execute(" UNION ALL ".join(each.format(name) for name in TABLES) + " ORDER BY 1, 2")
        found: dict[str, list[str]] = {}
        for row in rows:
            found.setdefault(row.name, []).append(row.row)
        return found

    def left(self) -> set[str]:
        """Name the runs that are there."""
        return {str(row.run_id) for row in self.execute("SELECT run_id FROM agentruns.runs")}


@pytest.fixture
def archive(owner_url: str, run: Run) -> Archive:
    return Archive(owner_url, run)


@pytest.fixture
def role(archive: Archive, server: Any) -> Iterator[str]:
    """A role with the privileges of retention and no other."""
    removed = [*OF_A_RUN, "scheduler_fairness_reservations"]
    grants = [f"GRANT SELECT, DELETE ON agentruns.{name} TO {ROLE}" for name in removed]
    archive.execute(f"CREATE ROLE {ROLE} LOGIN")
    for grant in (
        f"GRANT USAGE ON SCHEMA agentruns TO {ROLE}",
        *grants,
        f"GRANT SELECT ON agentruns.applied_revisions TO {ROLE}",
        f"GRANT UPDATE (thread_id) ON agentruns.runs TO {ROLE}",
        f"GRANT UPDATE (slot) ON agentruns.scheduler_fairness_reservations TO {ROLE}",
        f"GRANT INSERT ON agentruns.retention_receipts TO {ROLE}",
    ):
        archive.execute(grant)
    yield ROLE
    archive.execute(f"DROP OWNED BY {ROLE} CASCADE")
    server.execute(f"DROP ROLE {ROLE}")


@pytest.fixture
def sample() -> type[Sample]:
    """Make a run that succeeded two hours ago, or another one."""
    return Sample
