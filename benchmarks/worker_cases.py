"""The cases of workers: how the rate grows with processes, what claims and fair turns cost, and how work comes back."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Final

from asyncpg import InterfaceError, PostgresError
from attrs import define, field, frozen

from agentruns import AgentWorker, FairShard, ShardId, TenantFairnessPolicy, TenantId
from agentruns.domain.ids import AttemptId
from agentruns.operations.embedded import EmbeddedServer
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.worker_options import AgentWorkerOptions
from benchmarks.measure import Clock, Figure, middle
from benchmarks.names import (
    CLAIMS_ALONE,
    CLAIMS_TOGETHER,
    FAIR,
    PROCESSES,
    ROTATION,
)
from benchmarks.ours import DRIVEN, Ours, Submission
from benchmarks.place import OURS, Place

#: Whose runs are only claimed, and the four that share workers.
CLAIMED: Final = TenantId("claimed")
SHARING: Final = tuple(TenantId(f"tenant-{name}") for name in "abcd")

_LOOK: Final = 0.02
_SET: Final = 64
_SECOND: Final = 1.0
#: As long as this is the queue under which a server is restarted, so that it does not become empty.
_QUEUES: Final = 8


@frozen(kw_only=True)
class WorkerSizes:
    """How much of workers is measured.

    Attributes:
        rounds: how often each case is measured; the round of the middle rate is reported.
        runs: in a queue.
        claims: runs that are claimed, by sixteen or one at a time.
        callers: slots of a worker.
        seconds: how long the rate is watched before a server is restarted, and at most after it.
    """

    rounds: int = 3
    runs: int = 1_000
    claims: int = 320
    callers: int = 16
    seconds: int = 10


@frozen(kw_only=True)
class Recovery:
    """How work came back after the server was away.

    Attributes:
        rate: runs that ended in a second before.
        seconds: from the server's return until a whole second had 95 % of that rate; ``None`` when none had.
        most: what that may be.
    """

    rate: float
    seconds: float | None
    most: float = 5.0

    @property
    def is_kept(self) -> bool:
        """Whether it came back in time."""
        return self.seconds is not None and self.seconds <= self.most


@define(kw_only=True)
class WorkerCases:
    """Measure workers on a queue of runs of three nodes."""

    place: Place
    library: Ours
    sizes: WorkerSizes
    _numbers: count[int] = field(factory=count)
    _figures: dict[str, list[Figure]] = field(factory=dict)

    @property
    def figures(self) -> dict[str, Figure]:
        """Give the middle round of each case."""
        return {name: middle(found) for name, found in self._figures.items()}

    @property
    def rates(self) -> dict[str, list[float]]:
        """Give the rate of each case in each round."""
        return {name: [each.rate for each in found] for name, found in self._figures.items()}

    async def round(self) -> None:
        """Measure each case once."""
        for processes, name in PROCESSES.items():
            await self._keep(name, partial(self._queue, processes))
        await self._claims()
        await self._keep(ROTATION, lambda: self._shared(None))
        await self._keep(FAIR, lambda: self._shared(self._shard()))

    async def recovery(self, server: EmbeddedServer) -> Recovery:
        """Restart the server under two workers whose queue does not become empty."""
        async with self._workers(2) as start:
            await self._submit(self.library.submissions(DRIVEN, self._take(_QUEUES * self.sizes.runs)))
            await start()
            rate = await self._rate()
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            return Recovery(rate=rate, seconds=await self._seconds_until(0.95 * rate))

    async def _queue(self, processes: int) -> Figure:
        """Let workers end what lies in the queue when they begin."""
        async with self._workers(processes) as start:
            await self._submit(self.library.submissions(DRIVEN, self._take(self.sizes.runs)))
            before, clock = await self._ended(), Clock()
            await start()
            while await self._ended() - before < self.sizes.runs:  # noqa: ASYNC110 - it happens in other processes
                await asyncio.sleep(_LOOK)
            return clock.figure(self.sizes.runs * [clock.seconds])

    @asynccontextmanager
    async def _workers(self, processes: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Open worker processes, and give what lets them begin."""
        url = self.place.url(OURS).render_as_string()
        arguments = ("-m", "benchmarks.worker_process", url, str(self.sizes.callers), DRIVEN.text)
        opened = [
            await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE)
            for _ in range(processes)
        ]
        for process in opened:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"

        async def start() -> None:
            for process in opened:
                _tell(process)

        try:
            yield start
        finally:
            for process in opened:
                _tell(process)
                await process.wait()

    async def _claims(self) -> None:
        """Claim what is ready, give it back, and claim it again in the other way."""
        digests = self.library.work.executables.graph_digests
        for name, size in ((CLAIMS_TOGETHER, self.sizes.callers), (CLAIMS_ALONE, 1)):
            await self._submit(self.library.submissions(CLAIMED, self._take(self.sizes.claims)))
            await self.place.settle()
            clock, times = Clock(), list[float]()
            for _ in range(self.sizes.claims // size):
                ids = [AttemptId.generate() for _ in range(size)]
                found = await self.library.store.claim_ready(CLAIMED, size, attempt_ids=ids, graph_digests=digests)
                assert len(found) == size
                times += size * [clock.seconds]
            self._figures.setdefault(name, []).append(clock.figure(times))

    async def _shared(self, shard: FairShard | None) -> Figure:
        """Let one worker of this process end the runs of four tenants."""
        each = self.sizes.runs // len(SHARING)
        for tenant_id in SHARING:
            await self._submit(self.library.submissions(tenant_id, self._take(each)))
        library, runs = self.library, each * len(SHARING)
        options = AgentWorkerOptions(slots=self.sizes.callers, poll_interval=timedelta(milliseconds=20))
        worker = AgentWorker(
            library.store,
            library.work.executables,
            tenants=SHARING,
            loop=library.loop,
            options=options,
            fairness=shard,
        )
        shutdown, clock = ShutdownSignal(), Clock()
        library.loop.expect(runs)
        working = asyncio.create_task(worker.run(shutdown))
        await library.loop.all_succeeded()
        found = clock.figure(runs * [clock.seconds])
        shutdown.drain()
        await working
        return found

    def _shard(self) -> FairShard:
        policy = TenantFairnessPolicy.of({tenant_id.text: 1 + place for place, tenant_id in enumerate(SHARING)})
        return FairShard(self.library.store, ShardId("benchmark"), policy)

    async def _submit(self, submissions: Sequence[Submission]) -> None:
        for first in range(0, len(submissions), _SET):
            await self.library.submit_set(submissions[first : first + _SET])

    async def _rate(self) -> float:
        """Count what ends in a while, once the workers are at it."""
        await asyncio.sleep(_SECOND)
        before = await self._ended()
        clock = Clock()
        await asyncio.sleep(self.sizes.seconds / 5)
        return (await self._ended() - before) / clock.seconds

    async def _seconds_until(self, rate: float) -> float | None:
        """Look again and again at the last second."""
        clock = Clock()
        looks: deque[tuple[float, int]] = deque()
        while clock.seconds < self.sizes.seconds:
            looks.append((clock.seconds, await self._ended()))
            while looks[-1][0] - looks[0][0] > _SECOND:
                (then, before), (now, ended) = looks[0], looks[-1]
                if ended - before >= rate * (now - then):
                    return now
                looks.popleft()
            await asyncio.sleep(_LOOK)
        return None

    async def _ended(self) -> int:
        """Count the runs that have ended, on a connection of its own."""
        while True:
            with suppress(OSError, PostgresError, InterfaceError):
                connection = await self.place.connect(OURS)
                found = await connection.fetchval("SELECT count(*) FROM agentruns.run_outcomes")
                await connection.close()
                return int(found)
            await asyncio.sleep(_LOOK)

    async def _keep(self, name: str, measure: Callable[[], Awaitable[Figure]]) -> None:
        await self.place.settle()
        self._figures.setdefault(name, []).append(await measure())

    def _take(self, how_many: int) -> list[int]:
        return [next(self._numbers) for _ in range(how_many)]


def _tell(process: Process) -> None:
    """Send a worker one line: the first lets it begin, the second lets it end."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
