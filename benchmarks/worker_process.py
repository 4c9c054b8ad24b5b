"""A worker in a process of its own: ``python -m benchmarks.worker_process URL SLOTS TENANT``.

It says ``ready`` once its store is open, works from the first line of its input on, and drains at the end of the input.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from sqlalchemy import URL, make_url

from agentruns import AgentWorker, TenantId
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker_options import AgentWorkerOptions
from benchmarks.ours import opened
from benchmarks.workload import workload


async def work(url: URL, slots: int, tenant_id: TenantId) -> None:
    """Work until the input ends."""
    work = workload()
    shutdown = ShutdownSignal()
    async with opened(url, work) as library:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        options = AgentWorkerOptions(slots=slots, poll_interval=timedelta(milliseconds=20))
        worker = AgentWorker(library.store, work.executables, tenants=[tenant_id], options=options)
        working = asyncio.create_task(worker.run(shutdown))
        await asyncio.to_thread(sys.stdin.readline)
        shutdown.drain()
        await working


if __name__ == "__main__":
    asyncio.run(work(make_url(sys.argv[1]), int(sys.argv[2]), TenantId(sys.argv[3])))
