"""Turn what the database refuses in our own statements into errors of ours, without SQL, parameters or its text."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

from agentruns.errors import (
    AgentRunsError,
    DeploymentError,
    InvalidOptionError,
    InvariantError,
    SchemaVerificationError,
)
from agentruns.store.transient import constraint_of, sqlstate_of

_NOT_MIGRATED = frozenset({"42P01", "3F000", "42703", "42883"})
_NOT_PERMITTED = "42501"
_APPEND_ONLY = "AR005"
_NO_DATABASE = "3D000"
_NOT_AUTHORISED = "28"
#: A prepared statement is not there, or another one has its name: a pooler has changed backends in between.
_NO_SUCH_STATEMENT = frozenset({"26000", "42P05"})


def refusal(error: DBAPIError, *, schema: str) -> AgentRunsError:
    """Name what a statement of ours met that repeating it would meet again."""
    state = sqlstate_of(error)
    if state in _NOT_MIGRATED:
        return SchemaVerificationError(reason="not_migrated", schema=schema)
    if state == _NOT_PERMITTED:
        return SchemaVerificationError(reason="missing_privileges", schema=schema)
    if state == _APPEND_ONLY:
        return InvariantError(reason="append_only")
    if state == _NO_DATABASE or state.startswith(_NOT_AUTHORISED):
        return DeploymentError(reason="database_refused", detail=f"SQLSTATE {state}")
    if state in _NO_SUCH_STATEMENT:
        bound = "0, as ?statement_cache_size=0 in the URL, behind a pooler that keeps no prepared statements"
        return InvalidOptionError(option="statement_cache_size", value="not 0", bound=bound)
    return InvariantError(reason=constraint_of(error) or f"sqlstate_{state or 'unknown'}")
