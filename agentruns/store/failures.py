"""Turn what the database refuses in our own statements into errors of ours, without SQL, parameters or its text."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

from agentruns.errors import AgentRunsError, InvariantError, SchemaVerificationError
from agentruns.store.transient import constraint_of, sqlstate_of

_NOT_MIGRATED = frozenset({"42P01", "3F000", "42703", "42883"})
_NOT_PERMITTED = "42501"
_APPEND_ONLY = "AR005"


def refusal(error: DBAPIError, *, schema: str) -> AgentRunsError:
    """Name what a statement of ours met that repeating it would meet again."""
    state = sqlstate_of(error)
    if state in _NOT_MIGRATED:
        return SchemaVerificationError(reason="not_migrated", schema=schema)
    if state == _NOT_PERMITTED:
        return SchemaVerificationError(reason="missing_privileges", schema=schema)
    if state == _APPEND_ONLY:
        return InvariantError(reason="append_only")
    return InvariantError(reason=constraint_of(error) or f"sqlstate_{state or 'unknown'}")
