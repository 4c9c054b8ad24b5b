"""Where the time of a call goes: what a profiler measured, added up by the room of the house that the code is in."""

from __future__ import annotations

import cProfile
import pstats
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from attrs import frozen
from rich.console import Console
from rich.table import Table
from sqlalchemy import URL

from benchmarks.measure import measured
from benchmarks.names import DRIVE, LOAD, LOAD_ELSEWHERE, RETRY, SUBMIT
from benchmarks.ours import ADMITTED, DRIVEN, Submission, opened
from benchmarks.place import OURS, Place, place
from benchmarks.workload import workload

#: File, line and name, as the profiler writes them; what is written in C has ``~`` for a file.
_Function: TypeAlias = tuple[str, int, str]

WAITING: Final = "waiting for the server"

#: The first that is found in the file's name decides. Classes of attrs have methods that were generated for them, and
#: the file that those claim names their class.
_ROOMS: Final = (
    ("schemas", re.compile(r"jsonschema|referencing|agentruns[/.]domain[/.]schema")),
    ("domain", re.compile(r"agentruns[/.]domain")),
    ("store", re.compile(r"agentruns[/.](?:store|orm)")),
    ("runtime", re.compile(r"agentruns[/.]runtime")),
    ("SQLAlchemy", re.compile(r"sqlalchemy|greenlet")),
    ("asyncpg", re.compile(r"asyncpg")),
    ("asyncio", re.compile(r"asyncio|selectors")),
    ("attrs and cattrs", re.compile(r"\battrs?\b|cattrs")),
    ("the benchmark", re.compile(r"benchmarks")),
    ("standard library", re.compile(r"")),
)
#: What is written in C belongs to its callers, but for these, which are system calls.
_SYSTEM: Final = {"poll": WAITING, "select": WAITING, "send": "sending and receiving", "recv": "sending and receiving"}
_METHOD: Final = re.compile(r"<method '(\w+)' of '(?:select\.|_socket\.)|<built-in method select\.(\w+)>")


@frozen(kw_only=True)
class Profile:
    """What one call took, in microseconds under the profiler, room by room."""

    case: str
    rooms: dict[str, float]


async def measure(base: URL, *, calls: int, callers: int) -> list[Profile]:
    """Profile submissions, loads of those runs, loads where nothing is known of them, and retries."""
    work = workload()
    async with place(base) as here, opened(here.url(OURS), work) as library:
        new = library.submissions(ADMITTED, range(calls))
        again = library.again(new)
        return [
            await _profile(here, SUBMIT, new, library.submit, callers),
            await _profile(here, LOAD, new, library.load, callers),
            await _profile(here, LOAD_ELSEWHERE, new, library.elsewhere().load, callers),
            await _profile(here, RETRY, again, library.retry, callers),
        ]


async def measure_drives(base: URL, *, calls: int, callers: int) -> list[Profile]:
    """Profile the drives of runs that lie ready, in batches of as many as there are callers."""
    work = workload()
    async with place(base) as here, opened(here.url(OURS), work) as library:
        await measured(library.submissions(DRIVEN, range(calls + callers)), library.submit, callers=callers)
        await here.settle()
        await library.drive_ready(slots=callers)
        driven = 0
        with cProfile.Profile() as profiler:
            while batch := await library.drive_ready(slots=callers):
                driven += batch
        return [_shared(DRIVE, profiler, calls=driven)]


def show(profiles: Sequence[Profile]) -> None:
    """Write a table: microseconds of a call and their share, the largest sum first."""
    table = Table(title="microseconds of one call, under a profiler that slows Python down and C hardly")
    table.add_column("room")
    for each in profiles:
        table.add_column(each.case, justify="right")
    rooms = {room for each in profiles for room in each.rooms}
    for room in sorted(rooms, key=lambda room: -sum(each.rooms.get(room, 0.0) for each in profiles)):
        table.add_row(room, *(_cell(each.rooms.get(room, 0.0), sum(each.rooms.values())) for each in profiles))
    table.add_row("all", *(f"{sum(each.rooms.values()):,.0f}      " for each in profiles))
    Console().print(table)


def _cell(microseconds: float, total: float) -> str:
    return f"{microseconds:,.0f} {microseconds / total:5.0%}"


async def _profile(
    here: Place,
    case: str,
    items: Sequence[Submission],
    call: Callable[[Submission], Awaitable[object]],
    callers: int,
) -> Profile:
    warm_up = len(items) // 10
    await measured(items[:warm_up], call, callers=callers)
    await here.settle()
    profiler = cProfile.Profile()
    with profiler:
        await measured(items[warm_up:], call, callers=callers)
    return _shared(case, profiler, calls=len(items) - warm_up)


def _shared(case: str, profiler: cProfile.Profile, *, calls: int) -> Profile:
    sums = by_room(pstats.Stats(profiler))
    return Profile(case=case, rooms={room: 1e6 * each / calls for room, each in sums.items()})


def by_room(stats: pstats.Stats) -> dict[str, float]:
    """Add up the time that each function spent in itself."""
    sums: dict[str, float] = {}
    for function, (_, _, own, _, callers) in stats.stats.items():  # type: ignore[attr-defined]  # the stubs leave it out
        shares = {caller: each[2] for caller, each in callers.items()} if function[0] == "~" else {}
        for owner, share in shares.items() or [(function, own)]:
            room = _system(function) or _room(owner)
            sums[room] = sums.get(room, 0.0) + share
    return sums


def _system(function: _Function) -> str | None:
    found = _METHOD.match(function[2])
    return None if found is None else _SYSTEM.get(found[1] or found[2])


def _room(function: _Function) -> str:
    return next(name for name, pattern in _ROOMS if pattern.search(function[0]))
