"""What the server counts: commits and bytes of write-ahead log for each call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count, islice
from typing import Final

from attrs import frozen

from agentruns import StoreOptions, TenantId
from benchmarks.measure import measured
from benchmarks.names import DRIVE, DRIVE_ALONE, LOAD, RETRY, RUN, RUN_ALONE, SUBMIT_ALONE
from benchmarks.ours import ADMITTED, DRIVEN, Ours, Submission, opened
from benchmarks.place import OURS, Place
from benchmarks.workload import Workload

#: Numbers of orders that no other case uses.
_FIRST: Final = 1_000_000_000
#: What others are told goes by the second and not by the call.
_SILENT: Final = StoreOptions(notifies=False)

_Calls = Callable[[Ours, Sequence[Submission]], Awaitable[object]]


@frozen(kw_only=True)
class Count:
    """What one call costs the server.

    Attributes:
        commits: transactions; in autocommit each statement is one.
        log_bytes: bytes of write-ahead log.
    """

    commits: float
    log_bytes: float

    def minus(self, other: Count) -> Count:
        """Give what this costs more."""
        return Count(commits=self.commits - other.commits, log_bytes=self.log_bytes - other.log_bytes)

    def over(self, calls: int) -> Count:
        """Share it out among calls."""
        return Count(commits=self.commits / calls, log_bytes=self.log_bytes / calls)


async def count_all(place: Place, work: Workload, *, calls: int, callers: int) -> dict[str, Count]:
    """Count what one call of each case costs."""
    numbers = count(_FIRST)

    async def submits(library: Ours, new: Sequence[Submission]) -> None:
        await measured(new, library.submit, callers=1)

    async def submits_and_loads(library: Ours, new: Sequence[Submission]) -> None:
        await submits(library, new)
        await measured(new, library.load, callers=1)

    async def submits_and_retries(library: Ours, new: Sequence[Submission]) -> None:
        await submits(library, new)
        await measured(library.again(new), library.retry, callers=1)

    async def runs_alone(library: Ours, new: Sequence[Submission]) -> None:
        await measured(new, library.run_alone, callers=1)

    async def runs(library: Ours, new: Sequence[Submission]) -> None:
        await library.run_all(new, callers=callers)

    async def cost(tenant_id: TenantId, function: _Calls) -> Count:
        costs = [await spent(tenant_id, function, how_many) for how_many in (calls, 2 * calls)]
        return costs[1].minus(costs[0]).over(calls)  # what a store costs by itself falls out

    async def spent(tenant_id: TenantId, function: _Calls, how_many: int) -> Count:
        await place.settle()
        before = await _spent(place)
        async with opened(place.url(OURS), work, _SILENT) as library:
            await function(library, library.submissions(tenant_id, islice(numbers, how_many)))
        return (await _spent(place)).minus(before)

    submit = await cost(ADMITTED, submits)
    return {
        SUBMIT_ALONE: submit,
        LOAD: (await cost(ADMITTED, submits_and_loads)).minus(submit),
        RETRY: (await cost(ADMITTED, submits_and_retries)).minus(submit),
        RUN_ALONE: await cost(DRIVEN, runs_alone),
        RUN: await cost(DRIVEN, runs),
    }


async def count_drives(place: Place, work: Workload, *, rounds: int, runs: int, callers: int) -> dict[str, Count]:
    """Count what the drive of a run costs that was submitted before: of a lone one, and of one among many.

    Two lone runs, claimed one after the other, cost more than one does; the middle of the rounds is taken, since a
    machine that stalls makes a commit look for a fresh stamp.
    """
    numbers = count(2 * _FIRST)

    async def spent(how_many: int, slots: int) -> Count:
        async with opened(place.url(OURS), work, _SILENT) as library:
            new = library.submissions(DRIVEN, islice(numbers, how_many))
            for submission in new:
                await library.submit(submission)
        await place.settle()
        before = await _spent(place)
        async with opened(place.url(OURS), work, _SILENT) as library:
            for _ in range(-(-how_many // slots)):
                await library.drive_ready(slots=slots)
        return (await _spent(place)).minus(before)

    async def lone() -> Count:
        one = await spent(1, slots=1)
        return (await spent(2, slots=1)).minus(one)

    runs -= runs % callers
    among = await spent(runs, slots=callers)
    alone = sorted([await lone() for _ in range(rounds)], key=lambda each: each.commits)
    return {
        DRIVE_ALONE: alone[len(alone) // 2],
        DRIVE: (await spent(2 * runs, slots=callers)).minus(among).over(runs),
    }


async def _spent(place: Place) -> Count:
    return Count(commits=await place.commits(OURS), log_bytes=await place.written())
