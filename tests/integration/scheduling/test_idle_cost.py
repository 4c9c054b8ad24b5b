"""What a worker costs its database while it has nothing to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from sqlalchemy import event

from agentruns.domain.graph.returns import Finish
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.shutdown import ShutdownSignal

Run = Callable[[Coroutine[Any, Any, Any]], Any]

ANY = {"type": "object"}
SECONDS = 4.0


def test_N3_an_idle_worker_sends_at_most_two_statements_a_second_for_any_number_of_tenants(
    database_url: str, run: Run
) -> None:
    deployment = Deployment(issuer="https://example.com/", subject="idle")
    graph = deployment.add(GraphBuilder("idle", "1.0.0", input=ANY, state=ANY, output=ANY))

    @graph.node(entry=True, terminal=True)
    async def end(_context: Any) -> Finish:
        return Finish({})

    async def work() -> None:
        async with deployment.open(database_url, tenant=[f"t{number}" for number in range(20)]) as app:
            worker, shutdown, texts = app.make_worker(), ShutdownSignal(), []
            working = asyncio.create_task(worker.run(shutdown))
            async with asyncio.timeout(20):
                while not worker.is_listening:  # another task listens
                    await asyncio.sleep(0.01)
            # What it asks when it begins to listen is no part of its rest.
            await asyncio.sleep(1)
            engine = app.store._engine.sync_engine
            event.listen(engine, "before_cursor_execute", lambda *call: texts.append(call[2]))
            began = time.monotonic()
            await asyncio.sleep(SECONDS)
            count, seconds = len(texts), time.monotonic() - began
            shutdown.drain()
            await working
        assert 1 <= count <= 2 * seconds

    run(work())
