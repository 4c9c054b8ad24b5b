"""Worker processes for a storm, forked from one that has imported everything.

Run it as ``python storm_worker.py URL LOG``. Each line of its input starts one worker, whose process id is answered on
a line. At the end of the input every worker is told to drain.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

from agentruns.domain.graph.returns import Finish
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.testing.drives import TENANT, chain, executables_of, open_world

LEASE: Final = timedelta(seconds=1.5)
OPTIONS: Final = AgentWorkerOptions(slots=8, poll_interval=timedelta(milliseconds=50), supervision_interval=None)
_NODES: Final = "abc"


def graph(log: Path) -> GraphBundle:
    """Build three nodes in a row, each of which notes its call, whole and at once, before it does anything else."""

    def node(name: str) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        async def execute(context: Any) -> Any:
            file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(file, f"{context.run_id} {name} {context.attempt_id}\n".encode())
            os.close(file)
            await asyncio.sleep(0.01)
            return Finish(context.state) if name == _NODES[-1] else {name: True}

        return execute

    return chain(**{name: node(name) for name in _NODES})


async def work(url: str, log: Path) -> None:
    """Work until SIGTERM."""
    async with open_world(url, graph(log), lease=LEASE) as world:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, world.shutdown.drain)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        worker = AgentWorker(world.store, world.executables, tenants=[TENANT], loop=world.loop, options=OPTIONS)
        await worker.run(world.shutdown)


def live(url: str, log: Path) -> NoReturn:
    """Be a worker, and leave the process without what a parent would do on its way out."""
    asyncio.run(work(url, log))
    os._exit(0)


def main(arguments: Sequence[str]) -> None:
    url, log = arguments[0], Path(arguments[1])
    executables_of(graph(log))  # what is made once is made before anybody is forked
    # A worker that is told to drain before it can is told as soon as it can.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    children = []
    while sys.stdin.readline():
        child = os.fork()
        if child == 0:
            live(url, log)
        children.append(child)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
    for child in children:
        os.kill(child, signal.SIGTERM)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.stdout.write(f"{' '.join(map(str, statuses))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
