"""Ask a process's drives to end, in two steps."""

from __future__ import annotations

import asyncio


class ShutdownSignal:
    """Carry the wish to end to every drive of a process.

    Both steps are idempotent, may be taken before anything started, and from any thread or signal handler. A process
    that shuts down never cancels a run: it gives its runs back.
    """

    def __init__(self) -> None:
        self._is_draining = False
        self._is_stopping = False
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event, bool]] = []

    @property
    def is_draining(self) -> bool:
        """Whether nothing further may start."""
        return self._is_draining

    @property
    def is_stopping(self) -> bool:
        """Whether what runs is to be aborted now."""
        return self._is_stopping

    def drain(self) -> None:
        """Let what runs finish and be committed, and start nothing further."""
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

    async def _wait(self, *, stops: bool) -> None:
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event, stops)
        self._waiters.append(waiter)
        try:
            if not (self._is_stopping if stops else self._is_draining):
                await event.wait()
        finally:
            self._waiters.remove(waiter)
