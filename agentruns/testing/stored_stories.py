"""Store runs that a story has brought somewhere: their rows are written behind the library's back."""

from __future__ import annotations

from typing import Any

from attrs import define, frozen
from sqlalchemy import Connection, Table, func, insert, text, update

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import plain_digest
from agentruns.domain.ids import QuarantineId, RunId
from agentruns.domain.ledger.drafts import (
    AdmissionDraft,
    DraftedCommit,
)
from agentruns.domain.ledger.state import RunState
from agentruns.domain.quarantine import Quarantine, QuarantineCause
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.store import tables
from agentruns.testing.stories import EPOCH, OUTPUT, STORIES, USAGE, Story


def _write(connection: Connection, commit: DraftedCommit) -> None:
    """Write the rows of a commit, as no statement of the library does it."""
    run = {"tenant_id": str(commit.state.tenant_id), "run_id": str(commit.state.run_id)}
    for event in commit.events:
        _add(
            connection, tables.events, run, event, "sequence event_id recorded_at epoch kind schema_digest data digest"
        )
    for start in commit.starts:
        _add(connection, tables.attempts, run, start, "superstep node_id attempt attempt_id sequence")
    for each in commit.results:
        names = "superstep node_id attempt status body digest retry_not_before sequence"
        _add(connection, tables.results, run, each, names)
    if commit.checkpoint is not None:
        names = "superstep checkpoint_id ready state digest sequence"
        _add(connection, tables.checkpoints, run, commit.checkpoint, names)
    for wait in commit.waits:
        names = "wait_id kind registration digest due_at expires_at sequence"
        _add(connection, tables.waits, {**run, "status": "outstanding"}, wait, names)
    for settled in commit.settlements:
        names = "status settled_sequence resolution resolution_digest"
        change = _values(settled, names)
        connection.execute(
            update(tables.waits)
            .where(tables.waits.c.run_id == run["run_id"], tables.waits.c.wait_id == str(settled.wait_id))
            .values(change)
        )
    if commit.outcome is not None:
        _add(connection, tables.outcomes, run, commit.outcome, "kind body digest sequence")
    after = commit.projection
    change = _values(after, "status revision changed_at lifecycle_sequence superstep checkpoint_digest")
    change |= {f"head_{name}": value for name, value in _values(after.head, "sequence digest recorded_at").items()}
    ready_at = func.coalesce(tables.runs.c.scheduler_ready_at, _plain(after.changed_at))
    change |= {"fencing_epoch": 1, "scheduler_ready_at": ready_at if after.status.is_claimable else None}
    connection.execute(update(tables.runs).where(tables.runs.c.run_id == run["run_id"]).values(change))


def _add(connection: Connection, table: Table, run: dict[str, str], row: Any, names: str) -> None:
    connection.execute(insert(table).values({**run, **_values(row, names)}))


def _values(row: Any, names: str) -> dict[str, Any]:
    return {name: _plain(getattr(row, name)) for name in names.split()}


def _plain(value: Any) -> Any:
    """Write a scalar as its column holds it."""
    if isinstance(value, Timestamp):
        return value.to_datetime()
    for attribute in ("raw", "value", "text"):
        if hasattr(value, attribute):
            return getattr(value, attribute)
    return value


def _isolate(connection: Connection, state: RunState) -> None:
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
    status: RunStatus

    @property
    def tenant_id(self) -> TenantId:
        """The tenant of the run."""
        return self.story.state.tenant_id

    @property
    def run_id(self) -> RunId:
        """The run."""
        return self.story.state.run_id


@frozen
class Teller:
    """Submit runs and bring them where stories lead."""

    kit: Any
    stories: tuple[str, ...] = tuple(STORIES)
    output: BoundedJson = OUTPUT
    usage: BudgetUsage = USAGE

    async def __call__(self, runs: Any, name: str, *, is_attached: bool = False) -> Told:
        """Submit a run and bring it where the story of that name leads; its key may come after the admission."""
        kit, key, request = self.kit, AgentSubmissionKey.generate(), self.kit.request()
        if is_attached:
            await runs.admit(request)
        admitted = await runs.submit(key, request)
        graph = kit.executables.resolve(kit.graph.definition_digest)
        first = AdmissionDraft.of(request, graph).build(admitted.snapshot.admitted_at)
        story = Story(graph, first.state)
        play, status = STORIES[name]
        play(story)

        def rows(connection: Connection) -> None:
            for commit in story.commits:
                _write(connection, commit)
            if name == "quarantined":
                _isolate(connection, story.state)

        async with kit.engine() as engine, engine.begin() as connection:
            await connection.run_sync(rows)
        return Told(key, request, story, "attached" if is_attached else "admitted", status)

    async def permit_damage(self, connection: Any) -> None:
        """Take away what would refuse damage: triggers and checks. The transaction is to be rolled back."""
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        found = await connection.execute(
            text(
                "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint"
                " WHERE contype = 'c' AND connamespace = 'agentruns'::regnamespace"
            )
        )
        for statement in found.scalars().all():
            await connection.execute(text(statement))
