"""Collect the statements that a store sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from agentruns.runtime.store import AgentRunStore


@contextmanager
def sent_statements(store: AgentRunStore) -> Iterator[list[str]]:
    """Collect the text of every statement within the block, but those that tell others of what was committed."""
    texts: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "pg_notify" not in statement:
            texts.append(statement)

    engine = store._engine.sync_engine  # noqa: SLF001 - a store sends nothing that is not to be seen in a test
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield texts
    finally:
        event.remove(engine, "before_cursor_execute", note)
