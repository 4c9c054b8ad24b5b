"""What a failure means to the caller of a command: an exit code, and one sentence or one JSON object."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import click
from attrs import frozen

from agentruns.cli.options import Format
from agentruns.errors import (
    AgentRunsError,
    ConflictError,
    CorruptDataError,
    DeploymentError,
    InvalidValueError,
    NotFoundError,
    RefusedError,
    SchemaVerificationError,
    StoreError,
)

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

DEFECT: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
FINDINGS: Final = 5
SCHEMA: Final = 6
UNAVAILABLE: Final = 7
STOPPED: Final = 8
INTERRUPTED: Final = 130

#: The first class that fits decides.
_CODES: Final[tuple[tuple[type[AgentRunsError], int], ...]] = (
    (InvalidValueError, USAGE),
    (NotFoundError, NOT_FOUND),
    (RefusedError, REFUSED),
    (ConflictError, REFUSED),
    (DeploymentError, REFUSED),
    (CorruptDataError, FINDINGS),
    (SchemaVerificationError, SCHEMA),
    (StoreError, UNAVAILABLE),
)

#: Reasons of a deployment error that mean: there is no database now.
_NO_SERVER: Final = ("embedded_failed", "embedded_stopped")


@frozen(kw_only=True)
class Failure:
    """Say what went wrong, for a person and for a program.

    Attributes:
        exit_code: what the process ends with.
        code: lower-case words, stable.
        message: one sentence, without anything private.
        id: the id that it is about, where there is one.
        action: what to do.
        retryable: whether the identical call may succeed later.
    """

    exit_code: int
    code: str
    message: str
    id: str | None = None
    action: str = ""
    retryable: bool = False

    @property
    def sentence(self) -> str:
        """Message and action in one."""
        return f"{self.message}: {self.action}" if self.action else self.message

    @property
    def document(self) -> dict[str, dict[str, object]]:
        """The object that ``--format json`` writes."""
        names = ("code", "message", "id", "action", "retryable")
        return {"error": {name: getattr(self, name) for name in names}}


#: Of a command that has no key and no ids to repeat.
_UNREACHABLE: Final = Failure(
    exit_code=UNAVAILABLE,
    code="store_unavailable",
    message="The database cannot be reached",
    action="check the host and port in its URL and that the server runs, then try again",
    retryable=True,
)


def report(error: Exception, output_format: Format) -> int:
    """Write a failure to standard error and hand back its exit code."""
    if isinstance(error, click.ClickException) and output_format is Format.TABLE:
        error.show()
        return USAGE
    failure = failure_of(error)
    text = json.dumps(failure.document) if output_format is Format.JSON else f"Error: {failure.sentence}"
    click.echo(text, err=True)
    return failure.exit_code


def failure_of(error: Exception) -> Failure:
    """Read what an exception means; the text of one that is not ours is never repeated."""
    if isinstance(error, AgentRunsError):
        return _ours(error)
    if isinstance(error, click.ClickException):
        return Failure(exit_code=USAGE, code="usage", message=error.format_message(), action="see --help")
    if type(error).__module__.partition(".")[0] == "sqlalchemy":
        return _database(error)
    if isinstance(error, ConnectionError):
        return _UNREACHABLE
    if isinstance(error, OSError) and isinstance(error.filename, str) and error.strerror:
        message = f"{error.strerror}: {error.filename}"
        return Failure(exit_code=USAGE, code="file", message=message, action="name a file that can be used")
    return _defect(error)


def _ours(error: AgentRunsError) -> Failure:
    message, action = str(error).removesuffix(f"; {error.advice}"), error.advice
    if ": " in (happened := error.sentences.get(getattr(error, "reason", ""), "")):
        before, _, action = happened.partition(": ")
        message = message.replace(happened, before)
    return Failure(
        exit_code=_exit_code(error),
        code=".".join(part for part in (_words(type(error)), getattr(error, "reason", "")) if part),
        message=message[:1].upper() + message[1:],
        id=_id_of(error),
        action=action,
        retryable=error.retryable,
    )


def _exit_code(error: AgentRunsError) -> int:
    if isinstance(error, DeploymentError) and error.reason in _NO_SERVER:
        return UNAVAILABLE
    if isinstance(error, SchemaVerificationError) and error.reason == "excess_privileges":
        return FINDINGS
    return next((code for kind, code in _CODES if isinstance(error, kind)), DEFECT)


def _words(kind: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).lower()


def _id_of(error: AgentRunsError) -> str | None:
    found = getattr(error, "run_id", None) or getattr(error, "id", None)
    return None if found is None else str(found)


def _database(error: Exception) -> Failure:
    """Read an error of the database by its type and SQLSTATE, never by its text."""
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - the help of a command needs no SQLAlchemy

    from agentruns.store.transient import sqlstate_of, transient  # noqa: PLC0415 - see above

    state = sqlstate_of(error)
    if transient(error) is not None:
        return _unavailable("the database is not available", "try again later", state, retryable=True)
    if state.startswith("28"):
        return _unavailable("the database refuses the login", "correct the user or password in the URL", state)
    if state == "3D000":
        return _unavailable("the database does not exist", "create it, or correct its name in the URL", state)
    return _statement(error, state) if isinstance(error, DBAPIError) else _defect(error)


def _statement(error: DBAPIError, state: str) -> Failure:
    if state == "42501":
        message = f"The role may not do what the command must (sqlstate={state})"
        return Failure(exit_code=SCHEMA, code="missing_privileges", message=message, action="use the right role")
    if state in ("42P01", "3F000", "42703"):
        message = f"The schema is not the one that this release needs (sqlstate={state})"
        return Failure(exit_code=SCHEMA, code="not_migrated", message=message, action="run `agentruns db upgrade`")
    return _defect(error, detail=f"sqlstate={state or 'unknown'}")


def _unavailable(message: str, action: str, state: str, *, retryable: bool = False) -> Failure:
    text = f"{message[:1].upper()}{message[1:]}" + (f" (sqlstate={state})" if state else "")
    return Failure(exit_code=UNAVAILABLE, code="database", message=text, action=action, retryable=retryable)


def _defect(error: Exception, *, detail: str = "") -> Failure:
    named = ", ".join(part for part in (type(error).__name__, detail) if part)
    return Failure(exit_code=DEFECT, code="defect", message=f"An unexpected error ({named})", action="report it")
