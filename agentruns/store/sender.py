"""What a repository needs of its unit of work: a way to send one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import CursorResult, Executable, Select


class Sender(Protocol):
    """Send one statement, in the schema and on the connection of a unit of work."""

    def execute(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Send it and give its rows."""
        ...

    def rows(self, statement: Select[Any], parameters: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        """Send a statement of the path of every run, and give its rows; a ``uuid`` in them may be one, or its text.

        Such a statement is built once in a process.
        """
        ...
