"""Count the statements that a store sends."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from agentruns.runtime.store import AgentRunStore
from agentruns.testing.sent_statements import sent_statements


@pytest.fixture
def sent() -> Callable[[AgentRunStore], AbstractContextManager[list[str]]]:
    """Statements by their text: ``with sent(store) as texts``."""
    return sent_statements
