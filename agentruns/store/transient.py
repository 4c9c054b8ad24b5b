"""Tell passing database trouble from an answer: the one list of what may be tried again."""

from __future__ import annotations

from attrs import frozen
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

#: The server undid the statement and keeps the connection.
ROLLED_BACK = frozenset({"40001", "40P01", "55P03", "57014"})
#: The server has no place for a connection now.
NO_CONNECTION = frozenset({"53300"})
#: The connection is of no use any more, and so are its siblings; a commit may have happened.
LOST = frozenset({"25006", "25P03", "25P04", "57P01", "57P02", "57P03", "57P05"})

_READ_ONLY = "25006"
_CACHED_PLAN = "0A000"
_STARTING_UP = "57P03"


@frozen(kw_only=True)
class Transient:
    """Passing trouble with the database.

    Attributes:
        sqlstate: five characters, or empty where the server said nothing.
        is_lost: whether it was the connection, and no item of the statement, that failed.
        is_in_doubt: whether the statement may have committed all the same.
    """

    sqlstate: str
    is_lost: bool
    is_in_doubt: bool


def sqlstate_of(error: BaseException) -> str:
    """Read the SQLSTATE off a driver's error, wrapped by SQLAlchemy or not; empty when there is none."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return getattr(origin, "sqlstate", None) or ""


def constraint_of(error: BaseException) -> str:
    """Read the name of the constraint that refused; empty when there is none."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    return getattr(getattr(origin, "__cause__", None), "constraint_name", None) or ""


def transient(error: BaseException) -> Transient | None:
    """Classify an error by its type and SQLSTATE, never by its text; ``None`` is an answer and not to be repeated."""
    if isinstance(error, PoolTimeoutError | OSError | TimeoutError):
        return Transient(sqlstate="", is_lost=True, is_in_doubt=False)
    if not isinstance(error, DBAPIError):
        return None
    state = sqlstate_of(error)
    if state in LOST or state.startswith("08") or (not state and error.connection_invalidated):
        return Transient(sqlstate=state, is_lost=True, is_in_doubt=state not in (_READ_ONLY, _STARTING_UP))
    if state in ROLLED_BACK | NO_CONNECTION or (state == _CACHED_PLAN and _is_stale_plan(error)):
        return Transient(sqlstate=state, is_lost=state in NO_CONNECTION, is_in_doubt=False)
    return None


def _is_stale_plan(error: DBAPIError) -> bool:
    cause = getattr(error.orig, "__cause__", None)
    return type(cause).__name__ == "InvalidCachedStatementError"


def invalidate_on_failover(context: ExceptionContext) -> None:
    """Treat a demoted or vanishing server as a lost connection, so that the pool lets go of all its siblings.

    A read-only server passes every ping, and its pooled connections would answer 25006 for ever.
    """
    state = sqlstate_of(context.original_exception)
    if state in LOST or state.startswith("08"):
        context.is_disconnect = True
