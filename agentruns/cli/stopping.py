"""End a long command between two steps when a signal asks for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from agentruns.cli.output import Output


@contextmanager
def stopping(output: Output) -> Iterator[list[int]]:
    """Collect the first signal that asks for the end; a second one interrupts, as ever."""
    seen: list[int] = []
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        restore()
        output.say(f"{signal.Signals(number).name}: stopping after the batch under way; a second signal interrupts it")

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, handle)
    try:
        yield seen
    finally:
        restore()
