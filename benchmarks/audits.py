"""How fast an audit reads runs of every state, what it holds meanwhile, and whether it finds what was planted."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

import psutil
from attrs import define, field, frozen
from rich.console import Console
from rich.table import Table
from sqlalchemy import URL

from agentruns.domain.ids import RunId
from agentruns.operations.audit import EVERYTHING, AuditProgress, audit_runs
from agentruns.runtime.engine import create_engine
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.store.options import StoreOptions
from agentruns.testing.drives import DriveWorld, open_world
from agentruns.testing.mixed_runs import MIXED_STATES, mixed_graph
from agentruns.testing.planted_faults import PlantedFault, plant_ten
from agentruns.testing.tampering import superuser
from benchmarks.place import OURS, place

_CALLERS: Final = 16
_MIB: Final = 2**20
#: Longer than the runs take to make; a drive that lasts longer renews.
_LEASE: Final = timedelta(minutes=5)


@define(kw_only=True)
class Audit:
    """What one audit took.

    Attributes:
        name: of the case.
        progress: as it was in the end.
        resident: MiB of the process after each batch of runs.
        found: what it found.
        seconds: that it took.
        computed: seconds that the process itself computed; the rest was the server's, or other work on the machine.
    """

    name: str
    progress: AuditProgress = field(factory=AuditProgress)
    resident: list[float] = field(factory=list)
    found: list[PlantedFault] = field(factory=list)
    seconds: float = 0.0
    computed: float = 0.0
    _began: float = field(factory=time.process_time, init=False)

    def advance(self, progress: AuditProgress) -> None:
        """Look at the process after a batch."""
        self.progress, self.seconds = progress, progress.seconds
        self.computed = time.process_time() - self._began
        self.resident.append(psutil.Process().memory_info().rss / _MIB)


@frozen(kw_only=True)
class Audits:
    """Audits of one database, and the faults that were planted before the last.

    Attributes:
        audits: in their order.
        planted: what the last one has to find.
    """

    audits: tuple[Audit, ...]
    planted: list[PlantedFault]

    @property
    def are_right(self) -> bool:
        """Nothing was found but what was planted, and all of that."""
        *clean, last = self.audits
        return last.found == self.planted and not any(each.found for each in clean)


async def measure(base: URL, *, runs: int) -> Audits:
    """Make runs of every state in equal parts; audit them, and again after ten faults were planted."""
    async with place(base) as here:
        url = here.url(OURS).set(drivername="postgresql+asyncpg")
        text = url.render_as_string(hide_password=False)
        async with open_world(text, mixed_graph(), lease=_LEASE) as world:
            made = await _made(world, runs // len(MIXED_STATES))
            gc.collect()
            clean = [
                await _audited(url, "without an application", None),
                await _audited(url, "with its application", world.executables),
            ]
            async with superuser(text) as connection:
                planted = await plant_ten(connection, made, choose=lambda ids: ids[len(ids) // 2])
            return Audits(audits=(*clean, await _audited(url, "ten faults", None)), planted=planted)


async def _made(world: DriveWorld, each: int) -> dict[str, list[RunId]]:
    turns = asyncio.Semaphore(_CALLERS)

    async def bring(to: Callable[[DriveWorld], Awaitable[RunId]]) -> RunId:
        async with turns:
            return await to(world)

    return {name: await asyncio.gather(*(bring(to) for _ in range(each))) for name, to in MIXED_STATES.items()}


async def _audited(url: URL, name: str, executables: ExecutableGraphRegistry | None) -> Audit:
    audit = Audit(name=name)
    engine = create_engine(url, StoreOptions(pool_size=1))
    try:
        async with engine.connect() as connection:
            found = audit_runs(connection, EVERYTHING, executables=executables, on_progress=audit.advance)
            audit.found = sorted([PlantedFault(each.label, each.run_id or "", each.place) async for each in found])
    finally:
        await engine.dispose()
    return audit


def show(audits: Audits) -> None:
    """Write the figures."""
    table = Table(title="audits")
    for column in ("case", "runs", "events", "runs/s", "our ms/run", "MiB after first batch", "MiB at most", "found"):
        table.add_column(column, justify="left" if column == "case" else "right", no_wrap=column == "case")
    for each in audits.audits:
        table.add_row(
            each.name,
            str(each.progress.runs),
            str(each.progress.events),
            f"{each.progress.runs / each.seconds:.0f}",
            f"{each.computed / each.progress.runs * 1000:.1f}",
            f"{each.resident[0]:.0f}",
            f"{max(each.resident):.0f}",
            str(len(each.found)),
        )
    console = Console()
    console.print(table)
    console.print("found exactly what was planted" if audits.are_right else "FOUND SOMETHING ELSE THAN WAS PLANTED")
