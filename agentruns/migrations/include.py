"""Keep a host's comparison of models and database away from our schema, and from nothing else."""

from __future__ import annotations

from typing import Final

from alembic import context
from alembic.runtime.environment import NameFilterParentNames, NameFilterType

from agentruns.orm import Base

_OURS: Final = frozenset(table.name for table in Base.metadata.tables.values()) | {"alembic_version"}


def include_name(
    name: str | None, type_: NameFilterType, parent_names: NameFilterParentNames, *, schema: str = "agentruns"
) -> bool:
    """Answer Alembic's question whether a reflected name takes part in a comparison.

    Pass it as ``include_name`` to ``context.configure``, or compose it with your own filter by ``and``. Where our
    schema is the connection's default, as it is for a role of the same name, it hides our tables and no others.
    """
    place = name if type_ == "schema" else parent_names.get("schema_name")
    if place is not None or _default_schema() != schema:
        return place != schema
    table = name if type_ == "table" else parent_names.get("table_name")
    return table not in _OURS


def _default_schema() -> str | None:
    """Ask the environment that compares for the schema that Alembic calls ``None``."""
    try:
        return context.get_context().dialect.default_schema_name
    except (NameError, AttributeError):  # outside of an environment Alembic's proxy stands for nothing
        return None
