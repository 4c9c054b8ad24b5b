"""A tenant has the graphs that were published to it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from agentruns.domain.graph.definition import GraphNode
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import (
    MutationOutcome,
)
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import (
    ExecutableGraphUnavailableError,
    IdConflictError,
    UnitOfWorkError,
)
from agentruns.runtime.joined import JoinedAgentRuns
from agentruns.testing.graphs import graph_of

Run = Callable[[Coroutine[Any, Any, Any]], Any]


COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT


def test_a_graph_that_the_tenant_does_not_have_is_refused(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs(publish=False) as runs:
            with pytest.raises(ExecutableGraphUnavailableError) as refused:
                await runs.submit(AgentSubmissionKey.generate(), kit.request())
            assert (refused.value.reason, refused.value.tenant_id) == ("not_registered", kit.request().tenant_id)

    run(work())
    assert run(kit.rows()) == {}


def test_a_version_of_a_graph_is_published_once(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs(publish=False) as runs, kit.engine() as engine:
            tenant = kit.request().tenant_id
            assert await runs.publish(tenant, kit.graph) is COMMITTED
            assert await runs.publish(tenant, kit.graph) is IDEMPOTENT
            other = graph_of([GraphNode.of("a", terminal=True)])
            with pytest.raises(IdConflictError) as conflict:
                await runs.publish(tenant, other)
            assert (conflict.value.kind, conflict.value.id) == ("graph", kit.graph.identity)
            async with engine.begin() as connection:
                assert await runs.publish(TenantId("tenant-b"), other, session=connection) is COMMITTED
                with pytest.raises(IdConflictError):
                    await runs.publish(tenant, other, session=connection)
                assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1

    run(work())


def test_a_read_only_transaction_is_refused_and_can_be_used_on(kit: Any, run: Run) -> None:
    """What the tenant has already is evidence, and wins."""

    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine, engine.connect() as connection, connection.begin():
            tenant, joined = kit.request().tenant_id, JoinedAgentRuns(kit.executables)
            await connection.execute(text("SET TRANSACTION READ ONLY"))
            for call in (
                runs.publish(TenantId("tenant-b"), kit.graph, session=connection),
                connection.run_sync(partial(joined.publish, TenantId("tenant-b"), kit.graph)),
            ):
                with pytest.raises(UnitOfWorkError) as refused:
                    await call
                assert refused.value.reason == "read_only"
            assert await runs.publish(tenant, kit.graph, session=connection) is IDEMPOTENT
            with pytest.raises(IdConflictError):
                await runs.publish(tenant, graph_of([GraphNode.of("a", terminal=True)]), session=connection)
            assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1

    run(work())
