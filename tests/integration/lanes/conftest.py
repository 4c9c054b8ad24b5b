"""Count the statements that a store sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from agentruns.runtime.store import AgentRunStore


@contextmanager
def _sent(store: AgentRunStore) -> Iterator[list[str]]:
    """Collect the text of every statement sent within the block."""
    texts: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        texts.append(statement)

    event.listen(store._engine.sync_engine, "before_cursor_execute", note)
    try:
        yield texts
    finally:
        event.remove(store._engine.sync_engine, "before_cursor_execute", note)


@pytest.fixture
def sent() -> Callable[[AgentRunStore], AbstractContextManager[list[str]]]:
    """Statements by their text: ``with sent(store) as texts``."""
    return _sent
