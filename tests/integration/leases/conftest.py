"""A database whose clock stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agentruns.testing.movable_clock import MovableClock


@pytest.fixture
def clock(owner_url: str, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> MovableClock:
    """The clock of the test's database."""
    movable = MovableClock(owner_url)
    run(movable.install())
    return movable
