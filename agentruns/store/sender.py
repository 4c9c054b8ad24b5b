"""What a repository needs of its unit of work: a way to send one statement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sqlalchemy import CursorResult, Executable


class Sender(Protocol):
    """Send one statement, in the schema and on the connection of a unit of work."""

    def execute(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Send it and give its rows."""
        ...
