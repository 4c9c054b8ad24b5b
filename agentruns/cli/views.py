"""The overviews, for statements that read them. They are no tables of the library's models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnClause, TableClause, Uuid, column, table

_IDS: Final = frozenset({"run_id", "attempt_id", "wait_id", "quarantine_id"})


def view(name: str, columns: Sequence[str], *, schema: str) -> TableClause:
    """Name some columns of a view."""
    return table(name, *map(named, columns), schema=schema)


def named(name: str) -> ColumnClause[Any]:
    """Name a column; ids are read as text."""
    return column(name, Uuid(as_uuid=False)) if name in _IDS else column(name)
