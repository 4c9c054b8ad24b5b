"""What meets a schema at run time: a role that may not change it, releases before and after it, another schema."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.domain.admission import AgentAdmissionBudgetLayer
from agentruns.domain.graph.returns import Finish
from agentruns.domain.run_ids import AgentRunIds
from agentruns.domain.status import RunStatus
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import RunNotFoundError, SchemaVerificationError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.store.transient import sqlstate_of
from agentruns.store.verification import verify_schema
from agentruns.testing import samples
from agentruns.testing.drives import DriveWorld, chain, executables_of

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

TENANT = samples.TENANT
BUNDLE = chain(a=lambda _context: Finish({"done": True}))
NEWER = "INSERT INTO agentruns.applied_revisions VALUES (17, 'agentruns_0017', sha256(''), 17, now(), 'dba', '9.0.0')"
PERMIT = "UPDATE agentruns.applied_revisions SET oldest_code = 16 WHERE number = 17"
APPLIED = "SELECT t::text FROM agentruns.applied_revisions AS t ORDER BY number"


async def refused(url: str, statement: str) -> str:
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.connect() as connection:
        with pytest.raises(DBAPIError) as caught:
            await connection.execute(text(statement))
    await engine.dispose()
    return sqlstate_of(caught.value)


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE agentruns.mine ()", "ALTER TABLE agentruns.runs ADD mine int", "CREATE SCHEMA mine"]
)
def test_J5_role_of_the_runtime_has_no_ddl(database_url: str, run: Run, statement: str) -> None:
    assert run(refused(database_url, statement)) == "42501"


def test_J5_runtime_needs_no_ddl(in_world: Callable[..., None]) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert (await world.loaded(run_id)).status is RunStatus.SUCCEEDED

    in_world(work, BUNDLE)


async def opened(url: str) -> None:
    async with AgentRunStore(url):
        pass


def applied(connection: Connection) -> list[str]:
    return list(connection.execute(text(APPLIED)).scalars())


def refusal(url: str, run: Run, within: Within) -> SchemaVerificationError:
    """Give what refuses to open a store; nothing has changed."""
    before = within(url, applied)
    with pytest.raises(SchemaVerificationError) as caught:
        run(opened(url))
    assert within(url, applied) == before
    return caught.value


def test_J5_database_one_revision_behind_is_refused(database_url: str, run: Run, within: Within) -> None:
    within(database_url, lambda connection: migrations.downgrade(connection, to="15"))
    error = refusal(database_url, run, within)
    assert (error.reason, error.found, error.wanted) == ("behind", "agentruns_0015", "agentruns_0016")


def test_J5_J6_database_one_revision_ahead_says_itself_whom_it_permits(
    database_url: str, run: Run, within: Within
) -> None:
    within(database_url, lambda connection: connection.execute(text(NEWER)))
    error = refusal(database_url, run, within)
    assert (error.reason, error.found, error.wanted) == ("ahead", "agentruns_0017", "agentruns_0016")
    within(database_url, lambda connection: connection.execute(text(PERMIT)))
    run(opened(database_url))
    with pytest.raises(SchemaVerificationError) as caught:
        within(database_url, lambda connection: verify_schema(connection, strict=True))
    assert (caught.value.reason, caught.value.found) == ("ahead", "agentruns_0017")


def request() -> Any:
    graph = BUNDLE.graph
    return samples.admission_request(
        ids=AgentRunIds.generate(),
        descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
        request=samples.agent_request(input={}, input_schema=graph.input_schema),
        budget_layers=(AgentAdmissionBudgetLayer.system_default(),),
        graph=graph.reference,
        initial_state=samples.graph_state({}, schema=graph.state_schema),
    )


def test_J8_stores_of_two_schemas_share_no_row(empty_database_url: str, run: Run, within: Within) -> None:
    def rows(connection: Connection) -> list[Any]:
        counted = "SELECT (SELECT count(*) FROM {0}.runs), (SELECT count(*) FROM {0}.agent_submission_keys)"
        return [tuple(connection.execute(text(counted.format(name))).one()) for name in ("left_one", "right_one")]

    async def work() -> None:
        executables = executables_of(BUNDLE)
        left, right = (
            AgentRunStore(empty_database_url, StoreOptions(schema=name)) for name in ("left_one", "right_one")
        )
        async with left, right:
            here, there = DurableAgentRuns(left, executables), DurableAgentRuns(right, executables)
            for each in (here, there):
                await each.publish(TENANT, BUNDLE.graph)
            calls = [(each, request()) for _ in range(10) for each in (here, there)] + [(here, request())]
            await asyncio.gather(*(each.submit(AgentSubmissionKey.generate(), asked) for each, asked in calls))
            for each, asked in calls:
                assert (await each.load(TENANT, asked.run_id)).provenance.run_id == asked.run_id
                with pytest.raises(RunNotFoundError):
                    await (there if each is here else here).load(TENANT, asked.run_id)

    for name in ("left_one", "right_one"):
        within(empty_database_url, partial(migrations.upgrade, schema=name))
    run(work())
    assert within(empty_database_url, rows) == [(11, 11), (10, 10)]
