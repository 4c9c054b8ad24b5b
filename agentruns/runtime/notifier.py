"""Tell who listens, after a commit, that a tenant has work, or that a run has ended. Polling is right without it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from attrs import define, field

from agentruns.runtime.telemetry.counts import wake_ups_sent

_log: Final = logging.getLogger("agentruns.runtime.notifier")

#: Between the end of one statement and the next: at most twenty in a second.
INTERVAL: Final = 0.05
#: How long closing waits for what is still to be told.
_CLOSING_BOUND: Final = 1.0


@define(eq=False)
class Notifier:
    """Gather tenants with something new and runs that ended, and tell of them in statements of its own.

    The first is told of at once; what comes within 50 ms of a statement shares the next one. A statement that fails is
    forgotten: whom it would have woken polls.

    Attributes:
        send: tells of tenants and of runs that have ended, named by their ids, in one statement, and says in how many
            notifications.
        is_on: whether anybody is to be told; if not, nothing is done.
    """

    send: Callable[[Collection[str], Collection[str]], Awaitable[int]]
    is_on: bool
    _tenants: set[str] = field(factory=set, init=False)
    _ended: set[str] = field(factory=set, init=False)
    _asked: int = field(default=0, init=False)
    _sending: asyncio.Task[None] | None = field(default=None, init=False)
    _sent_at: float = field(default=-math.inf, init=False)
    _is_failing: bool = field(default=False, init=False)

    def ready(self, tenant: str) -> None:
        """Take a tenant whose run became ready by what has been committed. It costs the caller nothing to wait for."""
        if self.is_on:
            self._tenants.add(tenant)
            self._begin()

    def ended(self, run: str) -> None:
        """Take a run that has ended by what has been committed, likewise."""
        if self.is_on:
            self._ended.add(run)
            self._begin()

    async def close(self) -> None:
        """Tell of what is left, unless that takes longer than a second."""
        if self._sending is None:
            return
        _, late = await asyncio.wait({self._sending}, timeout=_CLOSING_BOUND)
        for task in late:
            task.cancel()
            await asyncio.wait({task})

    def _begin(self) -> None:
        self._asked += 1
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name="agentruns:notifier")

    async def _send_all(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while self._tenants or self._ended:
                # At least one turn of the event loop: who has been answered together is told of together.
                await asyncio.sleep(max(0.0, self._sent_at + INTERVAL - clock()))
                await self._tell()
                self._sent_at = clock()
        finally:
            self._sending = None

    async def _tell(self) -> None:
        tenants, self._tenants = self._tenants, set()
        ended, self._ended = self._ended, set()
        asked, self._asked = self._asked, 0
        try:
            wake_ups_sent(await self.send(tenants, ended), asked=asked)
            self._is_failing = False
        except Exception as error:  # noqa: BLE001 - whatever it was, polling finds the runs
            if not self._is_failing:
                _log.warning("wake-ups cannot be sent: workers poll", extra={"error": type(error).__name__})
            self._is_failing = True
