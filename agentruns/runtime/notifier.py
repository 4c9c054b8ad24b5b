"""Tell listening workers, after a commit, that a tenant has something for them. Polling is right without it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from attrs import define, field

_log: Final = logging.getLogger("agentruns.runtime.notifier")

#: Between the end of one statement and the next: at most twenty in a second.
INTERVAL: Final = 0.05
#: How long closing waits for what is still to be told.
_CLOSING_BOUND: Final = 1.0


@define(eq=False)
class Notifier:
    """Gather the tenants that have something new, and tell of them in statements of its own, beside everybody's work.

    The first is told of at once; what comes within 50 ms of a statement shares the next one. A statement that fails is
    forgotten: whom it would have woken polls.

    Attributes:
        send: tells of tenants, named by their ids, in one statement.
        is_on: whether anybody is to be told; if not, nothing is done.
    """

    send: Callable[[Collection[str]], Awaitable[None]]
    is_on: bool
    _tenants: set[str] = field(factory=set, init=False)
    _sending: asyncio.Task[None] | None = field(default=None, init=False)
    _sent_at: float = field(default=-math.inf, init=False)
    _is_failing: bool = field(default=False, init=False)

    def ready(self, tenant: str) -> None:
        """Take a tenant whose run became ready by what has been committed. It costs the caller nothing to wait for."""
        if self.is_on:
            self._tenants.add(tenant)
            if self._sending is None:
                self._sending = asyncio.create_task(self._send_all(), name="agentruns:notifier")

    async def close(self) -> None:
        """Tell of what is left, unless that takes longer than a second."""
        if self._sending is None:
            return
        _, late = await asyncio.wait({self._sending}, timeout=_CLOSING_BOUND)
        for task in late:
            task.cancel()
            await asyncio.wait({task})

    async def _send_all(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while self._tenants:
                # At least one turn of the event loop: who has been answered together is told of together.
                await asyncio.sleep(max(0.0, self._sent_at + INTERVAL - clock()))
                tenants, self._tenants = self._tenants, set()
                await self._tell(tenants)
                self._sent_at = clock()
        finally:
            self._sending = None

    async def _tell(self, tenants: Collection[str]) -> None:
        try:
            await self.send(tenants)
            self._is_failing = False
        except Exception as error:  # noqa: BLE001 - whatever it was, polling finds the runs
            if not self._is_failing:
                _log.warning("wake-ups cannot be sent: workers poll", extra={"error": type(error).__name__})
            self._is_failing = True
