"""Everything that a process does with runs, through a PgBouncer that gives each statement any of its backends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.cli import main
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import InvalidOptionError
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.deployment_open import OpenDeployment
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.options import StoreOptions
from agentruns.testing.samples import cancellation

Run = Callable[[Coroutine[Any, Any, Any]], Any]

ANY = {"type": "object"}
PATIENCE = timedelta(seconds=60)
OPTIONS = StoreOptions(settings="role")
RUNS = 16

DEPLOYMENT = Deployment(issuer="https://example.com/", subject="pooled")
GRAPH = DEPLOYMENT.add(GraphBuilder("pooled", "1.0.0", input=ANY, state=ANY, output=ANY))


@GRAPH.node(entry=True, then="stay")
async def begin(_context: Any) -> dict[str, int]:
    return {"begun": 1}


@GRAPH.node(then="end")
async def stay(context: Any) -> dict[str, int]:
    if context.state.get("stays"):
        await asyncio.Event().wait()
    return {"stayed": 1}


@GRAPH.node(terminal=True)
def end(context: Any) -> Finish:
    return Finish({"number": context.state["number"]})


async def submitted(app: OpenDeployment, **content: Any) -> RunId:
    request = app.request(GRAPH, input=content, state=content)
    admitted = await app.runs.submit(AgentSubmissionKey.generate(), request)
    assert admitted.outcome is MutationOutcome.COMMITTED
    return admitted.snapshot.provenance.run_id


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # another task changes it
            await asyncio.sleep(0.01)


def test_runs_are_submitted_driven_loaded_cancelled_and_waited_for(pooled_url: str, run: Run) -> None:
    async def work() -> None:
        async with DEPLOYMENT.open(pooled_url, tenant="acme", options=OPTIONS) as app:
            worker, shutdown = app.make_worker(AgentWorkerOptions(slots=16)), ShutdownSignal()
            working = asyncio.create_task(worker.run(shutdown))
            run_ids = await asyncio.gather(*(submitted(app, number=number) for number in range(RUNS)))
            stays = await submitted(app, stays=True)
            ended = await asyncio.gather(*(app.runs.wait(app.tenant, each, timeout=PATIENCE) for each in run_ids))
            outputs = [each.outcome.result.output.value for each in ended]  # type: ignore[union-attr]
            assert outputs == [{"number": number} for number in range(RUNS)]

            key, request = AgentSubmissionKey.generate(), app.request(GRAPH, input={}, state={"number": 1})
            first, again = await app.runs.submit(key, request), await app.runs.submit(key, request)
            assert (first.outcome, again.outcome) == (MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT)
            assert (await app.runs.load_by_key(app.tenant, key)).provenance.run_id == request.run_id

            await app.runs.request_cancellation(app.tenant, stays, event_id=EventId.generate(), failure=cancellation())
            cancelled = await app.runs.wait(app.tenant, stays, timeout=PATIENCE)
            assert cancelled.status is RunStatus.CANCELLED
            assert (await app.runs.explain(app.tenant, stays)).verdict.value == "finished"
            shutdown.drain()
            await working

    run(work())


def test_neither_a_worker_nor_a_call_that_waits_listens_there_and_both_find_what_happens(
    pooled_url: str, owner_url: str, run: Run
) -> None:
    async def statements() -> list[str]:
        engine = create_async_engine(owner_url, poolclass=NullPool)
        async with engine.connect() as connection:
            found = await connection.execute(
                text("SELECT query FROM pg_stat_activity WHERE datname = current_database()")
            )
            texts = list(found.scalars())
        await engine.dispose()
        return texts

    async def work() -> None:
        async with DEPLOYMENT.open(pooled_url, tenant="acme", options=OPTIONS) as app:
            worker, shutdown = app.make_worker(), ShutdownSignal()
            working = asyncio.create_task(worker.run(shutdown))
            run_id = await submitted(app, stays=True)
            waiting = asyncio.create_task(app.runs.wait(app.tenant, run_id, timeout=PATIENCE))
            await until(lambda: worker.health.reason == "listener_behind_pooler")
            await until(lambda: app.store.ends._listener.trouble == "listener_behind_pooler")
            assert not any(each.startswith("LISTEN") for each in await statements())
            async with DEPLOYMENT.open(owner_url, tenant="acme") as other:
                await other.runs.request_cancellation(
                    app.tenant, run_id, event_id=EventId.generate(), failure=cancellation()
                )
            assert (await waiting).status is RunStatus.CANCELLED
            shutdown.drain()
            await working

    run(work())


def test_with_a_direct_connection_to_listen_on_both_hear(pooled_url: str, database_url: str, run: Run) -> None:
    async def drive(app: OpenDeployment, worker: AgentWorker) -> None:
        await until(lambda: worker.is_listening)
        run_id = await submitted(app, number=1)
        ended = await app.runs.wait(app.tenant, run_id, timeout=PATIENCE)
        assert ended.status is RunStatus.SUCCEEDED

    async def work() -> None:
        options = StoreOptions(settings="role", listen_url=database_url)
        async with DEPLOYMENT.open(pooled_url, tenant="acme", options=options) as app:
            # Longer than the test has time: only who hears of the run takes it.
            never = AgentWorkerOptions(poll_interval=timedelta(minutes=1), supervision_interval=None)
            worker, shutdown = app.make_worker(never), ShutdownSignal()
            working = asyncio.create_task(worker.run(shutdown))
            async with asyncio.timeout(30):
                await drive(app, worker)
            run_id = await submitted(app, stays=True)
            waiting = asyncio.create_task(app.runs.wait(app.tenant, run_id, timeout=PATIENCE))
            await until(lambda: app.store.ends.is_listening)
            waiting.cancel()
            shutdown.stop()
            await working

    run(work())


def test_a_submission_in_the_callers_transaction_is_true_with_its_commit(
    bare_pooled_url: str, pooled_url: str, run: Run
) -> None:
    async def work() -> None:
        engine = create_async_engine(bare_pooled_url, connect_args={"statement_cache_size": 0})
        async with DEPLOYMENT.open(pooled_url, tenant="acme", options=OPTIONS) as app:
            for is_kept in (True, False):
                key, request = AgentSubmissionKey.generate(), app.request(GRAPH, input={}, state={"number": 1})
                async with engine.connect() as connection:
                    transaction = await connection.begin()
                    await app.runs.submit(key, request, session=connection)
                    assert (await app.runs.load(app.tenant, request.run_id, session=connection)).outcome is None
                    await (transaction.commit() if is_kept else transaction.rollback())
                again = await app.runs.submit(key, request)
                assert again.outcome is (MutationOutcome.IDEMPOTENT if is_kept else MutationOutcome.COMMITTED)
        await engine.dispose()

    run(work())


def test_OPS_14_settings_that_the_pooler_refuses_are_told_of_as_an_option(pooled_url: str, run: Run) -> None:
    async def work() -> None:
        with pytest.raises(InvalidOptionError) as refused:
            async with DEPLOYMENT.open(pooled_url, tenant="acme"):
                pass
        assert (refused.value.option, refused.value.value) == ("settings", "startup")
        assert refused.value.bound == '"role" behind a pooler that refuses start parameters'

    run(work())


def test_commands_work_where_their_environment_says_that_settings_are_the_roles(pooled_url: str, run: Run) -> None:
    async def work() -> RunId:
        async with DEPLOYMENT.open(pooled_url, tenant="acme", options=OPTIONS) as app:
            return await submitted(app, number=1)

    run_id = run(work())
    environment = {"AGENTRUNS_DATABASE_URL": pooled_url, "AGENTRUNS_CONNECTION_SETTINGS": "role"}
    done = CliRunner(env=environment).invoke(main, ["--format", "json", "runs", "list", "--tenant", "acme"])
    assert (done.exit_code, run_id.text in done.stdout) == (0, True)
    done = CliRunner(env=environment | {"AGENTRUNS_CONNECTION_SETTINGS": "mine"}).invoke(
        main, ["runs", "list", "--tenant", "acme"]
    )
    assert (done.exit_code, "settings" in done.stderr) == (2, True)
