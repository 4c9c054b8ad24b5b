"""Ask a process's drives to end, in two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext


class ShutdownSignal:
    """Carry the wish to end to every drive of a process.

    Both steps are idempotent, may be taken before anything started, and from any thread or signal handler. A process
    that shuts down never cancels a run: it gives its runs back.

    Args:
        follows: a signal whose wishes are this one's as well; it hears nothing of what this one is asked for.
    """

    def __init__(self, *, follows: ShutdownSignal | None = None) -> None:
        self._follows = follows
        self._is_draining = False
        self._is_stopping = False
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, bool]] = []

    @property
    def is_draining(self) -> bool:
        """Whether nothing further may start."""
        return self._is_draining or (self._follows is not None and self._follows.is_draining)

    @property
    def is_stopping(self) -> bool:
        """Whether what runs is to be aborted now."""
        return self._is_stopping or (self._follows is not None and self._follows.is_stopping)

    def drain(self) -> None:
        """Let what runs finish and be committed, and start nothing further.

        Where that decides a step, a wait or the end of a run, it is committed too: no worker need follow for it.
        """
        self._set(stops=False)

    def stop(self) -> None:
        """Abort what runs; its attempts stay unfinished and the next fence takes them over."""
        self._set(stops=True)

    async def wait_draining(self) -> None:
        """Return once :meth:`drain` or :meth:`stop` was called."""
        await self._wait(stops=False)

    async def wait_stopping(self) -> None:
        """Return once :meth:`stop` was called."""
        await self._wait(stops=True)

    def _set(self, *, stops: bool) -> None:
        """Set the flags before looking who waits: without a lock, which a signal handler might find held."""
        self._is_draining = True
        self._is_stopping = self._is_stopping or stops
        for loop, event, wants_stop in list(self._waiters):
            if not wants_stop or self._is_stopping:
                loop.call_soon_threadsafe(event.set)

    @contextmanager
    def waking(self, event: asyncio.Event, *, stops: bool) -> Iterator[None]:
        """Set an event of this loop as soon as the step has been taken, within the block.

        It is looked for after the event was added, so that a signal between the two is not missed.
        """
        waiter = (asyncio.get_running_loop(), event, stops)
        leading = nullcontext() if self._follows is None else self._follows.waking(event, stops=stops)
        self._waiters.append(waiter)
        try:
            if self._is_stopping if stops else self._is_draining:
                event.set()
            with leading:
                yield
        finally:
            self._waiters.remove(waiter)

    async def _wait(self, *, stops: bool) -> None:
        event = asyncio.Event()
        with self.waking(event, stops=stops):
            await event.wait()
