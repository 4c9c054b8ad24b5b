"""A reading at full depth finds whatever was altered of a run, and believes every run that nobody has altered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import Table

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest, plain_digest
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.numbers import DurationMillis, JournalSequence
from agentruns.domain.payload import JournalPayload
from agentruns.domain.retry_advice import SafeAfter
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import NodeWait, WaitResolver
from agentruns.errors import CorruptDataError, ExecutableGraphUnavailableError, NodeFailedError, RunNotFoundError
from agentruns.operations.quarantines import release_quarantine
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.waits import DurableRunWaits
from agentruns.runtime.whole_run import WholeRunReader
from agentruns.runtime.whole_run_checks import RunChecks
from agentruns.store import tables
from agentruns.store import whole_history as pages
from agentruns.testing import samples
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, builder, chain
from agentruns.testing.isolating import flip, isolate
from agentruns.testing.tampering import Record, superuser

InWorld = Callable[..., None]

PAST = Timestamp.parse("2020-01-02T03:04:05.000006Z")
#: What no digest covers. The fence may be any later one; instants of the control plane stand beside bodies; whatever
#: stands in place of a key's digest could be one.
NO_EVIDENCE = {
    "runs": {"fencing_epoch", "scheduler_ready_at"},
    "run_quarantines": {"quarantined_at"},
    "run_quarantine_releases": {"released_at"},
    "agent_submission_keys": {"key_digest"},
}


def asking() -> GraphBundle:
    """Ask, wait for an answer and a moment, and finish after a second try."""
    graph = builder()

    async def ask(_context: Any) -> Suspend:
        request = JournalPayload(
            schema=samples.schema_reference("evidence"), kind=JournalEventKind("question"), data=BoundedJson.of({})
        )
        return Suspend(NodeWait.interrupt("approval", request=request), NodeWait.timer(due_at=PAST))

    async def go_on(context: Any) -> Finish:
        if context.attempt == 1:
            raise NodeFailedError(failure=samples.failure(retry_advice=SafeAfter(delay=DurationMillis(0))))
        return Finish({"done": True})

    graph.node(name="ask", entry=True, then="go_on", wait_to="go_on")(ask)
    graph.node(name="go_on", terminal=True)(go_on)
    return graph.build()


async def asleep(world: DriveWorld) -> RunId:
    run_id = await world.submitted()
    assert (await world.driven(run_id)).outcome is AgentLoopOutcome.WAITING
    return run_id


async def answered(world: DriveWorld, run_id: RunId) -> None:
    """Answer what a run waits for, and drive it to its end. The timer was due when it was registered."""
    service = DurableRunWaits(world.store, world.executables)
    (approval,) = await service.outstanding(TENANT, run_id)
    answer = JournalPayload(
        schema=samples.schema_reference("evidence"), kind=JournalEventKind("answer"), data=BoundedJson.of({"ok": True})
    )
    await service.resolve_interrupt(
        TENANT,
        run_id,
        approval.wait_id,
        event_id=EventId.generate(),
        resolution=answer,
        resolver=WaitResolver(principal=samples.principal(), scopes=ScopeSet.of()),
    )
    while (ended := await world.driven(run_id)).outcome is not AgentLoopOutcome.SUCCEEDED:
        assert ended.outcome is AgentLoopOutcome.DEFERRED


async def released(world: DriveWorld, operator_url: str) -> RunId:
    """A run that was isolated, put right and released."""
    isolated = await isolate(world, await world.submitted())
    await flip(world, isolated.run_id)
    async with AgentRunStore(operator_url) as operator:
        await release_quarantine(
            operator,
            world.executables,
            TENANT,
            isolated.run_id,
            isolated.quarantine_id,
            principal=samples.principal(),
            reason="the page was restored",
            evidence=BoundedJson.of({}),
        )
    return isolated.run_id


async def told(world: DriveWorld, operator_url: str) -> dict[str, RunId]:
    """A run of each kind."""
    runs = {name: await asleep(world) for name in ("succeeded", "cancelled", "waiting")}
    await answered(world, runs["succeeded"])
    await request_cancellation(world, runs["cancelled"])
    await world.driven(runs["cancelled"])
    return runs | {"released": await released(world, operator_url)}


async def finding(world: DriveWorld, run_id: RunId) -> str:
    """What a reading finds; empty when it finds nothing."""
    try:
        await WholeRunReader(world.store, world.executables).read(TENANT, run_id)
    except CorruptDataError as error:
        return error.component
    except (ExecutableGraphUnavailableError, RunNotFoundError) as error:
        return type(error).__name__
    return ""


def test_LED_04_OPS_08_every_run_that_nobody_has_altered_verifies_and_is_counted(
    in_world: InWorld, operator_url: str
) -> None:
    async def work(world: DriveWorld) -> None:
        runs = await told(world, operator_url)
        before = await world.everything()
        reader = WholeRunReader(world.store, world.executables)
        whole = {name: await reader.read(TENANT, run_id) for name, run_id in runs.items()}
        counted = {
            name: (
                each.report.status,
                int(each.report.head_sequence),
                int(each.report.attempts),
                int(each.report.results),
                int(each.report.waits),
                int(each.report.isolations),
            )
            for name, each in whole.items()
        }
        assert counted == {
            "succeeded": (RunStatus.SUCCEEDED, 11, 3, 3, 2, 0),
            "cancelled": (RunStatus.CANCELLED, 7, 1, 1, 2, 0),
            "waiting": (RunStatus.WAITING, 5, 1, 1, 2, 0),
            "released": (RunStatus.ACTIVE, 1, 0, 0, 0, 1),
        }
        assert whole["succeeded"].snapshot == await world.loaded(runs["succeeded"])
        # Reading changes nothing, and reading again says the same.
        assert await world.everything() == before
        assert (await reader.read(TENANT, runs["succeeded"])).report.digest == whole["succeeded"].report.digest

    in_world(work, asking(), lease=timedelta(minutes=1))


def test_pages_of_one_row_read_the_same(in_world: InWorld, operator_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(world: DriveWorld) -> None:
        runs = await told(world, operator_url)
        reader = WholeRunReader(world.store, world.executables)
        before = [(await reader.read(TENANT, run_id)).report for run_id in runs.values()]
        monkeypatch.setattr(pages, "PAGE", 1)
        monkeypatch.setattr("agentruns.runtime.whole_run.PAGE", 1)
        assert [(await reader.read(TENANT, run_id)).report for run_id in runs.values()] == before

    in_world(work, asking(), lease=timedelta(minutes=1))


@pytest.mark.parametrize(
    "table",
    [
        tables.runs,
        tables.events,
        tables.checkpoints,
        tables.attempts,
        tables.results,
        tables.waits,
        tables.outcomes,
        tables.admissions,
        tables.keys,
        tables.quarantines,
        tables.quarantine_releases,
    ],
    ids=lambda each: str(each.name),
)
def test_LED_02_DB_06_OPS_08_every_column_of_every_row_is_verified(
    in_world: InWorld, operator_url: str, table: Table
) -> None:
    async def work(world: DriveWorld) -> None:
        runs = {run_id.text: run_id for run_id in (await told(world, operator_url)).values()}
        passed = set()
        async with superuser(world.url) as connection:
            record = Record(connection, table)
            for row in await record.rows():
                for name in [name for name in row if row[name] is not None]:
                    async with record.with_other(row, name):
                        if not await finding(world, runs[str(row["run_id"])]):
                            passed.add(name)
        assert passed == NO_EVIDENCE.get(table.name, set())
        assert [await finding(world, run_id) for run_id in runs.values()] == [""] * 4

    in_world(work, asking(), lease=timedelta(minutes=1))


@pytest.mark.parametrize(
    ("damage", "component"),
    [
        ("UPDATE agentruns.run_waits SET status = 'fired' WHERE status = 'resolved'", "run_waits.status"),
        ("UPDATE agentruns.run_waits SET status = 'resolved' WHERE status = 'fired'", "run_waits.status"),
        ("UPDATE agentruns.run_waits SET settled_sequence = 4 WHERE status = 'fired'", "run_waits.settled_sequence"),
        (
            "UPDATE agentruns.run_waits SET settled_sequence = null WHERE status = 'fired'",
            "run_waits.settled_sequence",
        ),
        (
            "UPDATE agentruns.run_waits SET settled_sequence = 99 WHERE status = 'fired'",
            "run_waits.settled_sequence",
        ),
        ("UPDATE agentruns.graph_definitions SET definition = '{}'", "graph_definitions.definition"),
        ("DELETE FROM agentruns.graph_definitions", "graph_definitions"),
    ],
)
def test_OPS_08_what_the_fold_alone_does_not_see(in_world: InWorld, damage: str, component: str) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await asleep(world)
        await answered(world, run_id)
        async with superuser(world.url):
            await world.rows(damage)
            assert await finding(world, run_id) == component

    in_world(work, asking(), lease=timedelta(minutes=1))


def test_an_event_whose_data_its_document_refuses_is_a_finding() -> None:
    checks = RunChecks(TENANT, samples.run_ids().run_id)
    kind = EventKind.TIMER_FIRED
    event = Event(
        tenant_id=TENANT,
        run_id=checks.run_id,
        sequence=JournalSequence(1),
        event_id=EventId.generate(),
        recorded_at=PAST,
        epoch=0,
        kind=kind.text,
        schema_digest=kind.document.digest,
        data=b'{"operation":"graph_timer_fired","revision":"3","wait_id":"01980000-0000-7000-8000-000000000001"}',
        digest=plain_digest(b"{}"),
    )
    assert checks.document(event) is kind
    refused = {
        b'{"operation":"graph_timer_fired","revision":"3"}': ("kind", "document"),
        b'{"operation":"graph_timer_fired","revision":3,"wait_id":"01980000-0000-7000-8000-000000000001"}': (
            "kind",
            "document",
        ),
        b'{"operation": "graph_timer_fired"}': ("kind", "document"),
        b"planted": ("kind", "document"),
    }
    for data, expected in refused.items():
        with pytest.raises(CorruptDataError) as error:
            checks.document(evolve(event, data=data))
        assert (error.value.component, error.value.reason) == expected
    with pytest.raises(CorruptDataError) as error:
        checks.document(evolve(event, schema_digest=Digest(bytes(32))))
    assert (error.value.component, error.value.reason) == ("kind", "unsupported_schema")


def test_a_run_that_is_not_there(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        with pytest.raises(RunNotFoundError):
            await WholeRunReader(world.store, world.executables).read(TENANT, RunId.generate())

    in_world(work, chain(a=lambda _context: Finish({})))
