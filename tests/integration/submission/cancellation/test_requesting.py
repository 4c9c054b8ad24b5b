"""Ask for the end of a run: one answer for each state that it can be in, and rows that say exactly that."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from attrs import evolve
from sqlalchemy import text

from agentruns.domain.ids import AttemptId, EventId, FailureId, RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.errors import (
    AgentRunsError,
    CancellationConflictError,
    CorruptDataError,
    IdConflictError,
    InvalidValueError,
    RunNotFoundError,
    RunNotRunnableError,
    RunQuarantinedError,
)
from agentruns.testing import samples
from agentruns.testing.stories import STORIES

Run = Callable[[Coroutine[Any, Any, Any]], Any]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
CANCELLING = RunStatus.CANCELLATION_REQUESTED
#: What a first request answers in each story; a status is that of the snapshot after it.
ANSWERS: Final[dict[str, type[AgentRunsError] | RunStatus]] = {
    "fresh": CANCELLING,
    "between": CANCELLING,
    "quarantined": RunQuarantinedError,
    "waiting": CANCELLING,
    "waiting_for_one": CANCELLING,
    "cancelling": CancellationConflictError,
    "cancelling_from_wait": CancellationConflictError,
    "cancelled": CancellationConflictError,
    "succeeded": RunNotRunnableError,
    "failed": RunNotRunnableError,
}


def asking(told: Any, **changes: Any) -> dict[str, Any]:
    """Name the arguments of a request with fresh ids."""
    failure = evolve(samples.cancellation(), id=FailureId.generate())
    return {
        "tenant_id": told.tenant_id,
        "run_id": told.run_id,
        "event_id": EventId.generate(),
        "failure": failure,
        **changes,
    }


@pytest.mark.parametrize("story", list(STORIES))
def test_SUB_24_each_state_of_a_run_has_its_answer(kit: Any, run: Run, tell: Any, story: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            told = await tell(runs, story)
            before, rows = await runs.load(told.tenant_id, told.run_id), await kit.rows()
            request, expected = asking(told), ANSWERS[story]
            if isinstance(expected, type):
                with pytest.raises(expected) as refused:
                    await runs.request_cancellation(**request)
                assert type(refused.value) is expected
                assert refused.value.retryable is False
                assert (await runs.load(told.tenant_id, told.run_id), await kit.rows()) == (before, rows)
                return
            asked = await runs.request_cancellation(**request)
            loaded = await runs.load(told.tenant_id, told.run_id)
            assert (asked.outcome, asked.snapshot) == (COMMITTED, loaded)
            assert loaded.status is expected
            assert loaded.revision.value == before.revision.value + 1
            again = await runs.request_cancellation(**request)
            assert (again.outcome, again.snapshot) == (IDEMPOTENT, loaded)
            assert await kit.rows() == rows | {
                "run_events": rows["run_events"] + 1,
                "run_outcomes": 1,
            }

    run(work())


def test_SUB_21_the_request_abandons_every_wait_in_its_own_commit(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, engine.connect() as connection:
            told = await tell(runs, "waiting")
            sequence = told.story.state.head.sequence.value + 1
            request = asking(told)
            asked = await runs.request_cancellation(**request)
            waits = await connection.execute(
                text("SELECT status, settled_sequence, resolution FROM agentruns.run_waits ORDER BY wait_id")
            )
            assert [tuple(row) for row in waits] == [("abandoned", sequence, None)] * 2
            event = (
                await connection.execute(
                    text("SELECT * FROM agentruns.run_events WHERE sequence = :sequence"), {"sequence": sequence}
                )
            ).one()
            named = ",".join(f'"{wait.wait_id}"' for wait in told.story.state.waits)
            assert f'"abandoned":[{named}]'.encode() in event.data
            assert (event.kind, event.epoch) == ("agent-cancellation-requested", 0)
            assert str(event.event_id) == str(request["event_id"])
            row = (await connection.execute(text("SELECT * FROM agentruns.runs"))).one()
            instant = asked.snapshot.changed_at.to_datetime()
            assert (row.status, row.head_sequence, row.lifecycle_sequence, bytes(row.head_digest)) == (
                "cancellation_requested",
                sequence,
                sequence,
                bytes(event.digest),
            )
            assert {row.changed_at, row.head_recorded_at, row.scheduler_ready_at, event.recorded_at} == {instant}
            assert row.scheduler_not_before is None

    run(work())


def test_the_lease_stays_with_its_holder_who_confirms(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, engine.connect() as connection:
            told = await tell(runs, "fresh")
            held = await runs._store.claim(told.tenant_id, told.run_id, AttemptId.generate())
            await runs.request_cancellation(**asking(told))
            row = (await connection.execute(text("SELECT * FROM agentruns.runs"))).one()
            assert row.lease_expires_at == held.lease.expires_at.to_datetime()
            assert row.fencing_epoch == 1

    run(work())


def test_SUB_20_the_same_event_stands_for_one_failure(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            told = await tell(runs, "between")
            request = asking(told)
            await runs.request_cancellation(**request)
            other = asking(told)["failure"]
            with pytest.raises(IdConflictError) as conflict:
                await runs.request_cancellation(**request | {"failure": other})
            assert (conflict.value.kind, conflict.value.id) == ("event", request["event_id"])
            with pytest.raises(CancellationConflictError) as first_stands:
                await runs.request_cancellation(**request | {"event_id": EventId.generate()})
            assert first_stands.value.recorded_failure_id == request["failure"].id

    run(work())


@pytest.mark.parametrize("story", ["cancelling", "cancelling_from_wait", "cancelled"])
def test_SUB_20_the_recorded_request_is_idempotent_before_and_after_its_confirmation(
    kit: Any, run: Run, tell: Any, story: str
) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            told = await tell(runs, story)
            recorded = next(each for each in told.story.commits if each.state.cancellation is not None)
            request = asking(told, event_id=recorded.events[-1].event_id, failure=recorded.state.cancellation.failure)
            again = await runs.request_cancellation(**request)
            assert again.outcome is IDEMPOTENT
            assert again.snapshot == await runs.load(told.tenant_id, told.run_id)

    run(work())


def test_an_id_of_another_event_of_the_run_is_a_conflict(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            told = await tell(runs, "fresh")
            with pytest.raises(IdConflictError) as conflict:
                await runs.request_cancellation(**asking(told, event_id=told.request.admission_event_id))
            assert conflict.value.run_id == told.run_id

    run(work())


def test_SUB_24_an_unknown_run_and_another_tenants_look_alike(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> list[str]:
        async with kit.runs() as runs:
            told = await tell(runs, "fresh")
            messages = []
            for changes in ({"run_id": RunId.generate()}, {"tenant_id": TenantId("tenant-b")}):
                request = asking(told, **changes)
                with pytest.raises(RunNotFoundError) as unknown:
                    await runs.request_cancellation(**request)
                messages.append(
                    str(unknown.value)
                    .replace(str(request["run_id"]), "RUN")
                    .replace(str(request["tenant_id"]), "TENANT")
                )
            return messages

    first, second = run(work())
    assert first == second


def test_an_end_can_be_asked_for_where_the_graph_is_not_deployed(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.runs(executables=kit.executables_of(graphs=()), publish=False) as elsewhere:
            told = await tell(runs, "between")
            asked = await elsewhere.request_cancellation(**asking(told))
            assert asked.outcome is COMMITTED
            assert asked.snapshot == await runs.load(told.tenant_id, told.run_id)

    run(work())


def test_corruption_is_found_before_anything_else_is_said(kit: Any, run: Run, tell: Any) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine(as_owner=True) as engine:
            told = await tell(runs, "succeeded")
            async with engine.begin() as connection:
                await connection.execute(text("SET LOCAL session_replication_role = replica"))
                await connection.execute(text("UPDATE agentruns.runs SET revision = revision + 1"))
            with pytest.raises(CorruptDataError) as corrupt:
                await runs.request_cancellation(**asking(told))
            assert corrupt.value.component == "runs.revision"

    run(work())


def test_a_failure_that_is_no_cancellation_never_reaches_the_database(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            sent = kit.sent(runs._store._engine)
            ids = {"tenant_id": samples.TENANT, "run_id": RunId.generate(), "event_id": EventId.generate()}
            refused = {
                "failure_kind_mismatch": samples.failure(),
                "failure_cause_mismatch": evolve(samples.cancellation(), caused_by_event_id=EventId.generate()),
            }
            for reason, failure in refused.items():
                with pytest.raises(InvalidValueError) as invalid:
                    await runs.request_cancellation(**ids, failure=failure)
                assert invalid.value.reason == reason
            request = ids | {"failure": samples.cancellation()}
            for name in request:
                with pytest.raises(TypeError, match=f"pass {name} as .*, not str"):
                    await runs.request_cancellation(**request | {name: "x"})
            assert sent == []

    run(work())
