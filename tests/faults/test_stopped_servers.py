"""A database server that is stopped for longer than a lease lives, and started again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.operations.embedded import EmbeddedServer
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, chain, open_world
from agentruns.testing.own_server import own_server

pytestmark = pytest.mark.slow

Run = Callable[[Coroutine[Any, Any, Any]], Any]

MAJOR = int(os.environ.get("AGENTRUNS_TEST_MAJOR", "18"))
LEASE = timedelta(seconds=4)
PATIENCE = timedelta(seconds=60)


def test_B8_a_node_that_outlives_its_lease_in_an_outage_has_one_result(run: Run) -> None:
    began, aborted = asyncio.Event(), asyncio.Event()

    async def a(context: Any) -> Finish:
        began.set()
        if context.attempt > 1:
            return Finish({})
        try:
            await asyncio.Event().wait()
        finally:
            aborted.set()
        raise AssertionError

    async def work(server: EmbeddedServer) -> None:
        url = server.url.render_as_string(hide_password=False)
        async with open_world(url, chain(a=a), lease=LEASE) as world, asyncio.timeout(120):
            options = AgentWorkerOptions(poll_interval=timedelta(milliseconds=50), listens=False, schema_interval=None)
            worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
            working = asyncio.create_task(worker.run(world.shutdown))
            run_id = await world.submitted()
            await began.wait()
            await asyncio.to_thread(server.stop)
            # Its lease cannot be renewed, so the node is ended before another fence may have the run.
            await aborted.wait()
            await asyncio.to_thread(server.start)
            snapshot = await world.runs.wait(TENANT, run_id, timeout=PATIENCE)
            world.shutdown.drain()
            await working
            assert snapshot.status.value == "succeeded"
            # Every physical attempt is in the journal, and one of them has a result.
            assert await world.attempts() == [("a", 1, 1), ("a", 2, 2)]
            results = await world.rows("SELECT node_id, attempt FROM agentruns.node_results")
            assert [tuple(row) for row in results] == [("a", 2)]

    with own_server(major=MAJOR) as server:
        run(work(server))
