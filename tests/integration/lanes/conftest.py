"""Count the statements that a store sends, and hold the clock of its database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from agentruns.runtime.store import AgentRunStore
from agentruns.testing.movable_clock import MovableClock
from agentruns.testing.sent_statements import sent_statements


@pytest.fixture
def sent() -> Callable[[AgentRunStore], AbstractContextManager[list[str]]]:
    """Statements by their text: ``with sent(store) as texts``."""
    return sent_statements


@pytest.fixture
def clock(owner_url: str, run: Callable[[Any], Any]) -> MovableClock:
    """The clock of the test's database, which stands still until the test moves it."""
    movable = MovableClock(owner_url)
    run(movable.install())
    return movable
