"""Workers and servers that die again and again under load: every run ends once, and no call is made without its start.

``AGENTRUNS_STORM=long`` makes the storms as long as a release is held to: a minute, and five thousand runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import runpy
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from attrs import define, field
from sqlalchemy.exc import DBAPIError

from agentruns.domain.ids import RunId
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import StoreError
from agentruns.operations.embedded import EmbeddedServer
from agentruns.runtime.replay import RunReader
from agentruns.testing.drives import TENANT, DriveWorld, open_world
from agentruns.testing.own_server import own_server
from agentruns.testing.strangers import Stranger

pytestmark = pytest.mark.slow

Run = Callable[[Coroutine[Any, Any, Any]], Any]

SCRIPT = Path(__file__).with_name("storm_worker.py")
STORM = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
MAJOR = int(os.environ.get("AGENTRUNS_TEST_MAJOR", "18"))
IS_LONG = os.environ.get("AGENTRUNS_STORM") == "long"
RUNS, SECONDS = (5_000, 60.0) if IS_LONG else (300, 5.0)
#: A run whose worker was killed waits for its lease; one after another they need a while on a slow machine.
PATIENCE = 600.0 if IS_LONG else 120.0


@define
class Storm:
    """Workers in processes of their own, and what became of the runs.

    Attributes:
        log: a line for each call of a node.
        forking: the process that the workers are forked from.
        workers: process ids of those that were not killed.
    """

    world: DriveWorld
    log: Path
    forking: asyncio.subprocess.Process
    run_ids: set[RunId] = field(factory=set)
    workers: list[int] = field(factory=list)
    killed: int = 0

    async def start(self) -> None:
        """Start one more worker."""
        assert self.forking.stdin is not None
        assert self.forking.stdout is not None
        self.forking.stdin.write(b"\n")
        self.workers.append(int(await self.forking.stdout.readline()))

    async def replace(self) -> None:
        """Kill a worker, whatever it does, and start another one."""
        victim = self.workers.pop(random.randrange(len(self.workers)))
        os.kill(victim, signal.SIGKILL)
        self.killed += 1
        await self.start()

    async def submit_all(self, count: int = RUNS) -> None:
        """Admit runs until there are so many, eight at a time, through whatever happens to the server meanwhile."""
        left = iter(range(count - len(self.run_ids)))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(self._submit(left) for _ in range(8)))
        assert len(self.run_ids) == count

    async def _submit(self, left: Iterator[int]) -> None:
        for _ in left:
            key, request = AgentSubmissionKey.generate(), self.world.request()
            while request.run_id not in self.run_ids:
                try:
                    admitted = await self.world.runs.submit(key, request)
                except StoreError:
                    await asyncio.sleep(0.1)
                else:
                    self.run_ids.add(admitted.snapshot.provenance.run_id)

    async def all_ended(self) -> None:
        """Return once every run has ended."""
        async with asyncio.timeout(PATIENCE):
            while await self.ended() < RUNS:
                await asyncio.sleep(0.1)

    async def some_ended(self) -> None:
        """Return once the storm's work is well under way."""
        async with asyncio.timeout(PATIENCE):
            while await self.ended() < RUNS // 10:
                await asyncio.sleep(0.05)

    async def stands_still(self) -> int:
        """Return once no further run ends in a second, with the number of those that have."""
        ended = -1
        async with asyncio.timeout(PATIENCE):
            while (now := await self.ended()) != ended:
                ended = now
                await asyncio.sleep(1.0)
        return ended

    async def ended(self) -> int:
        """Count the runs that have ended; none while the server is away."""
        with suppress(DBAPIError, OSError):
            found = await self.world.rows("SELECT count(*) AS n FROM agentruns.runs WHERE status = 'succeeded'")
            return int(found[0].n)
        return 0

    async def drained(self) -> list[int]:
        """Let the workers drain, and give the exit statuses of all that were ever started, in that order."""
        assert self.forking.stdin is not None
        assert self.forking.stdout is not None
        self.forking.stdin.close()
        return [int(status) for status in (await self.forking.stdout.readline()).split()]

    async def check(self) -> None:
        """Hold what is durable against what was asked for, and every call against its start."""
        found = await self.world.rows("SELECT run_id::text AS run_id, status, lease_attempt_id FROM agentruns.runs")
        assert {(row.run_id, row.status, row.lease_attempt_id) for row in found} == {
            (run_id.text, "succeeded", None) for run_id in self.run_ids
        }
        calls = Counter(line.split()[2] for line in self.log.read_text().splitlines())
        starts = {row.id for row in await self.world.rows("SELECT attempt_id::text AS id FROM agentruns.node_attempts")}
        assert set(calls) <= starts
        assert set(calls.values()) == {1}
        reader = RunReader(self.world.store, self.world.executables)
        for run_id in random.sample(sorted(self.run_ids, key=str), 100):
            await reader.read(TENANT, run_id)


@asynccontextmanager
async def storm(url: str, owner_url: str, log: Path, *, workers: int) -> AsyncIterator[Storm]:
    """Let workers work until the block is left."""
    pipe = asyncio.subprocess.PIPE
    forking = await asyncio.create_subprocess_exec(sys.executable, str(SCRIPT), url, str(log), stdin=pipe, stdout=pipe)
    try:
        async with open_world(owner_url, STORM.graph(log), store_url=url, lease=STORM.LEASE) as world:
            found = Storm(world, log, forking)
            for _ in range(workers):
                await found.start()
            yield found
    finally:
        assert forking.stdin is not None
        forking.stdin.close()
        await forking.wait()


def test_SCH_09_workers_that_are_killed_again_and_again_finish_every_run_once(
    database_url: str, owner_url: str, tmp_path: Path, run: Run
) -> None:
    """Each of four workers is killed about once a second; who comes after it goes on from the record."""

    async def work() -> None:
        async with storm(database_url, owner_url, tmp_path / "calls", workers=4) as blowing:
            submitting = asyncio.create_task(blowing.submit_all())
            loop = asyncio.get_running_loop()
            until = loop.time() + SECONDS
            while loop.time() < until:
                await asyncio.sleep(0.25)
                await blowing.replace()
            await submitting
            await blowing.all_ended()
            statuses = await blowing.drained()
            assert Counter(statuses) == {-signal.SIGKILL: blowing.killed, 0: 4}
            await blowing.check()

    run(work())


@pytest.fixture(name="own_server")
def _own_server() -> Iterator[EmbeddedServer]:
    with own_server(major=MAJOR) as server:
        yield server


def stop(server: EmbeddedServer) -> None:
    """Stop it as an operator does."""
    assert server.stop()


def kill(server: EmbeddedServer) -> None:
    """Kill all its processes at once."""
    pid = server.status().pid
    assert pid is not None
    postmaster = psutil.Process(pid)
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)


@pytest.mark.parametrize("end", [stop, kill])
def test_H3_OPS_07_workers_outlive_a_server_that_goes_away_and_comes_back(
    own_server: EmbeddedServer, tmp_path: Path, run: Run, end: Callable[[EmbeddedServer], None]
) -> None:
    url = own_server.url.render_as_string()

    async def work() -> None:
        async with storm(url, url, tmp_path / "calls", workers=2) as blowing:
            submitting = asyncio.create_task(blowing.submit_all())
            await blowing.some_ended()
            await asyncio.to_thread(end, own_server)
            await asyncio.sleep(1.0)
            await asyncio.to_thread(own_server.start)
            await submitting
            await blowing.all_ended()
            assert await blowing.drained() == [0, 0]
            await blowing.check()

    run(work())


def test_H1_H3_workers_outlive_ended_connections_and_a_server_that_becomes_read_only(
    own_server: EmbeddedServer, tmp_path: Path, run: Run
) -> None:
    url = own_server.url.render_as_string()

    async def work() -> None:
        async with storm(url, url, tmp_path / "calls", workers=2) as blowing:
            await blowing.submit_all(RUNS // 2)
            await blowing.some_ended()
            stranger = Stranger(url)
            await stranger.become_read_only()
            # However fast the workers were, half of the runs meet the read-only server.
            submitting = asyncio.create_task(blowing.submit_all())
            before = await blowing.stands_still()
            await asyncio.sleep(0.5)
            assert await blowing.ended() == before < RUNS
            await stranger.become_writable()
            for _ in range(5):
                await asyncio.sleep(0.3)
                await stranger.terminate_connections()
            await submitting
            await blowing.all_ended()
            assert await blowing.drained() == [0, 0]
            await blowing.check()

    run(work())
