"""A worker process that a test kills: it notes every call of a node, and hangs in the one that it is told.

Run it as ``python doomed_worker.py URL LOG SHAPE HANGS_IN``.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from agentruns.domain.graph.returns import Finish
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, chain, fan, open_world

LEASE: Final = timedelta(seconds=5)
POLL: Final = timedelta(milliseconds=50)


def graph(log: Path, *, shape: str, hangs_in: str = "") -> GraphBundle:
    """Build a chain ``a`` to ``c``, or siblings ``a`` to ``c`` before ``z_last``."""

    last = "c" if shape == "chain" else "z_last"

    def node(name: str) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        async def execute(context: Any) -> Any:
            with log.open("a", encoding="utf-8") as calls:
                calls.write(f"{name} {context.attempt}\n")
            if name == hangs_in:
                await asyncio.Event().wait()
            return Finish(context.state) if name == last else {name: context.attempt}

        return execute

    if shape == "chain":
        return chain(a=node("a"), b=node("b"), c=node("c"))
    return fan(first={name: node(name) for name in "abc"}, last=node("z_last"))


async def work(url: str, log: Path, shape: str, hangs_in: str) -> None:
    """Work until somebody kills the process."""
    bundle = graph(log, shape=shape, hangs_in=hangs_in)
    async with open_world(url, bundle, lease=LEASE, maximum_parallel_nodes=3) as world:
        options = AgentWorkerOptions(poll_interval=POLL)
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=options)
        await worker.run(world.shutdown)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
