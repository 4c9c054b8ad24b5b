"""A process that closes its store under drives and waiting calls, and has to end by itself.

Run it as ``python closing_worker.py URL STORE_URL RUNS``; it writes how its tasks ended. Each run has a node that
sleeps on the loop, and one that sleeps in a thread, where nobody can stop it, or waits for a thread.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from datetime import timedelta
from typing import Any, Final

from agentruns.domain.ids import RunId
from agentruns.runtime.agent_loop import AgentLoopResult
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import TENANT, fan, open_world

#: Longer than anybody waits for this process.
EVER: Final = 3600.0
THREADS: Final = 8


def graph(begun: list[str]) -> GraphBundle:
    """Build two siblings that never end."""

    async def a(_context: Any) -> None:
        begun.append("a")
        await asyncio.sleep(EVER)

    def b(_context: Any) -> None:
        begun.append("b")
        time.sleep(EVER)

    return fan(first={"a": a, "b": b}, last=lambda _context: None)


async def close_under(url: str, store_url: str, runs: int) -> Counter[str]:
    """Close the store once every node that can has begun, and say how drives and calls ended."""
    begun: list[str] = []
    options: dict[str, Any] = {"maximum_parallel_nodes": 2, "node_threads": THREADS}
    async with open_world(url, graph(begun), store_url=store_url, lease=timedelta(minutes=1), **options) as world:

        async def wait(run_id: RunId) -> object:
            return await world.runs.wait(TENANT, run_id, timeout=timedelta(seconds=EVER))

        run_ids = [await world.submitted() for _ in range(runs)]
        drives = [asyncio.create_task(world.driven(run_id)) for run_id in run_ids]
        waits = [asyncio.create_task(wait(run_id)) for run_id in run_ids]
        while (begun.count("a"), begun.count("b")) != (runs, min(runs, THREADS)):  # also in threads
            await asyncio.sleep(0.01)
        world.shutdown.stop()
        await world.store.close()
        ended = await asyncio.gather(*drives, *waits, return_exceptions=True)
    return Counter(each.outcome.value if isinstance(each, AgentLoopResult) else type(each).__name__ for each in ended)


if __name__ == "__main__":
    for how, count in sorted(asyncio.run(close_under(sys.argv[1], sys.argv[2], int(sys.argv[3]))).items()):
        sys.stdout.write(f"{how} {count}\n")
