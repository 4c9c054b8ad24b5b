"""Turn the refusals of our migrations into our errors, by SQLSTATE and never by text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from agentruns.errors import AgentRunsError, CorruptDataError, InvariantError, RefusedError, SchemaVerificationError
from agentruns.store.transient import sqlstate_of

#: The reasons that a guard of the migrations gives, by SQLSTATE; where a state has two, the error's detail is one.
_VERIFICATION = {
    "AR001": ("already_applied",),
    "AR002": ("behind", "tampered"),
    "AR003": ("unsupported_server",),
}
#: PostgreSQL's own ``data_corrupted``, with which 0016 stops at a run whose journal does not begin as it must.
_CORRUPT = "XX001"


@contextmanager
def translated(schema: str) -> Iterator[None]:
    """Raise our error in place of what the guards of a migration answered; other errors pass unchanged."""
    try:
        yield
    except DBAPIError as error:
        meaning = _meaning(error, schema)
        if meaning is None:
            raise
        raise meaning from error


def _meaning(error: DBAPIError, schema: str) -> AgentRunsError | None:
    state = sqlstate_of(error)
    if state in _VERIFICATION:
        reasons = _VERIFICATION[state]
        detail = _detail_of(error)
        return SchemaVerificationError(reason=detail if detail in reasons else reasons[0], schema=schema)
    if state == "AR004":
        return RefusedError(reason="downgrade_destroys_evidence")
    if state == _CORRUPT:
        return CorruptDataError(component="run_events", run_id=_detail_of(error) or None)
    return InvariantError(reason="append_only") if state == "AR005" else None


def _detail_of(error: DBAPIError) -> str:
    """Read the detail, which asyncpg keeps on the cause and psycopg in its diagnostics."""
    cause = getattr(error.orig, "__cause__", None)
    diagnostics = getattr(error.orig, "diag", None)
    return getattr(cause, "detail", None) or getattr(diagnostics, "message_detail", None) or ""
