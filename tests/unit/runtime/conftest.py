"""Time that passes only while everybody waits: a machine that stands still changes no test of durations."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from attrs import define

#: How much of that time a test may take; none of it passes for anybody who looks on.
BOUND = 10.0


@define
class Clock:
    """Stand for the monotonic clock of the process.

    Attributes:
        seconds: what it shows.
    """

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Selector(selectors.SelectSelector):
    """Let the time for which an event loop would sleep pass at once."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(timeout if timeout is None else 0.0)
        if not found and timeout is not None:
            self._clock.seconds += max(0.0, timeout)
        return found


@pytest.fixture
def within(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    """Run a test's work where durations are exact: ``within(work)``."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)

    def call(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Selector(clock))) as runner:
            runner.run(asyncio.wait_for(work(), BOUND))

    return call
