"""Bring a run's history to its fold, part after part, so that one state and one part are held at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Protocol, TypeVar

from attrs import evolve, frozen

from agentruns.domain.ledger.state import RunState
from agentruns.errors import CorruptDataError, RunNotFoundError, StaleHeadError
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.driver.computing import computed
from agentruns.runtime.driver.threads import NodeThreads
from agentruns.runtime.replay_fold import RunFold
from agentruns.runtime.replay_windows import ReadingBounds, fitting, pages_of, window_of
from agentruns.store.journal import HistoryRow, RunHistory, SuperstepSize, Window
from agentruns.store.unit_of_work import UnitOfWork

T = TypeVar("T")


class HistorySource(Protocol):
    """Where histories are read: a store, or one snapshot of it."""

    @property
    def clock(self) -> DatabaseClock:
        """What is told the database's time."""
        ...

    async def read(self, work: Callable[[UnitOfWork], T], /) -> T:
        """Run a unit of work that commits nothing."""
        ...


async def read_window(store: HistorySource, run: RunState, window: Window) -> RunHistory:
    """Read a window beside the run row.

    Raises:
        RunNotFoundError: the tenant has no such run.
    """
    history = await store.read(lambda work: work.journal.read(run.tenant_id, run.run_id, window))
    if history is None:
        raise RunNotFoundError(tenant_id=run.tenant_id, id=run.run_id)
    store.clock.observe(history.now)
    return history


@frozen(kw_only=True)
class HistoryReading:
    """Read one history.

    Attributes:
        store: where it lies.
        threads: for folds that would hold the event loop up.
        bounds: what is read at once.
        fold: what has been read.
    """

    store: HistorySource
    threads: NodeThreads
    bounds: ReadingBounds
    fold: RunFold

    async def read(self, window: Window) -> RunHistory:
        """Read a window of the run."""
        return await read_window(self.store, self.fold.state, window)

    async def add(self, rows: Sequence[HistoryRow], window: Window) -> None:
        """Fold a window; a large one in a thread, so that leases are renewed and nodes run on meanwhile."""
        await computed(partial(self.fold.add, rows, window), size=_size(rows), threads=self.threads)

    async def follow(self, history: RunHistory) -> RunHistory:
        """Fold a long history: up to the head that a statement saw, then with the run row what was written meanwhile.

        Below a head that was seen only moving columns change, so windows of different snapshots form one history. The
        last statement is one snapshot of the run row and of everything that the others left.

        Raises:
            StaleHeadError: ``recovery``; more was written meanwhile, each time, than one window holds.
        """
        for _ in range(self.bounds.rounds):
            await self._up_to(history.run["head_sequence"])
            window = Window(
                after_sequence=self.fold.sequence,
                first_superstep=self.fold.superstep,
                maximum_events=self.bounds.window_events,
                maximum_bytes=min(self.bounds.maximum_bytes, self.fold.room),
            )
            history = await self.read(window)
            if window.brought(history):
                await self.add(history.rows, window)
                return history
        raise StaleHeadError(tenant_id=self.fold.state.tenant_id, run_id=self.fold.state.run_id, reason="recovery")

    async def _up_to(self, head: int) -> None:
        while self.fold.sequence < head:
            sizes = await self._measured(head)
            self.fold.check_results(sizes[0].result_bytes)
            count = fitting([*takewhile(self._may_be_held, sizes)], self.bounds)
            if count:
                await self._part(sizes[:count], head)
            else:
                await self._pages(self._window(sizes[:1], head))

    def _may_be_held(self, step: SuperstepSize) -> bool:
        return step.result_bytes <= self.fold.maximum_result_bytes

    async def _measured(self, head: int) -> Sequence[SuperstepSize]:
        """Measure the supersteps that come next: the current one first, and no step ends before it has begun."""
        rest = Window(after_sequence=self.fold.sequence, until_sequence=head, first_superstep=self.fold.superstep)
        run, limit = self.fold.state, self.bounds.supersteps
        sizes = await self.store.read(
            lambda work: work.journal.superstep_sizes(run.tenant_id, run.run_id, rest, limit=limit)
        )
        if not sizes or sizes[0].superstep != self.fold.superstep:
            raise self._odd("run_checkpoints")
        if sizes[0].until_sequence is not None and sizes[0].until_sequence <= self.fold.sequence:
            raise self._odd("run_checkpoints")
        return sizes

    async def _part(self, sizes: Sequence[SuperstepSize], head: int) -> None:
        """Fold whole supersteps; what their waits brought was not measured, and may make the part too large."""
        window = self._window(sizes, head)
        if await self._is_folded(window):
            return
        if len(sizes) == 1:
            await self._pages(window)
            return
        middle = len(sizes) // 2
        await self._part(sizes[:middle], head)
        await self._part(sizes[middle:], head)

    async def _pages(self, step: Window) -> None:
        """Fold one superstep that is larger than a window: its events in pages, each measured before it is read."""
        while self.fold.sequence < step.until_sequence:
            rest = evolve(step, after_sequence=self.fold.sequence)
            pages = pages_of(await self._measured_events(rest), rest, self.bounds)
            if not pages:
                raise self._odd("run_events")
            for page in pages:
                await self._is_folded(page)

    async def _measured_events(self, step: Window) -> Sequence[tuple[int, int]]:
        run, limit = self.fold.state, self.bounds.window_events
        return await self.store.read(
            lambda work: work.journal.event_sizes(run.tenant_id, run.run_id, step, limit=limit)
        )

    def _window(self, sizes: Sequence[SuperstepSize], head: int) -> Window:
        return window_of(sizes, after=self.fold.sequence, head=head, bounds=self.bounds)

    async def _is_folded(self, window: Window) -> bool:
        """Read and fold a window, unless it is too large; then nothing has been read of it."""
        history = await self.read(window)
        if not window.brought(history):
            return False
        await self.add(history.rows, window)
        if self.fold.sequence != window.until_sequence:
            raise self._odd("run_events")
        return True

    def _odd(self, table: str) -> CorruptDataError:
        run = self.fold.state
        return CorruptDataError(tenant_id=run.tenant_id, run_id=run.run_id, component="row", reason=table)


def _size(rows: Iterable[HistoryRow]) -> int:
    return sum(len(row.body or b"") + len(row.second_body or b"") for row in rows)
