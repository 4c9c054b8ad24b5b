"""Every way in which a request can go wrong, and what a client is told: RFC 9457, and nothing private."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from agentruns import (
    AgentAdmissionConflictError,
    AgentRunsError,
    AgentSubmissionConflictError,
    ConflictError,
    DefinitionError,
    InvalidOptionError,
    InvalidValueError,
    NotFoundError,
    RefusedError,
    SchemaRejectedError,
    StoreError,
)

from .access import READ, Caller
from .database import DatabaseUnavailableError
from .orders import OrderConflictError, OrderNotFoundError

_log: Final = logging.getLogger("order_reviews.problems")

_RETRY_AFTER: Final = {"Retry-After": "1"}


def problem(status: int, *, headers: Mapping[str, str] | None = None, **members: str | None) -> JSONResponse:
    """Describe a problem; its title is that of the status, and members without a value are left out."""
    said: dict[str, Any] = {"title": HTTPStatus(status).phrase, "status": status}
    said |= {name: value for name, value in members.items() if value is not None}
    return JSONResponse(said, status, headers, media_type="application/problem+json")


def of_runs(error: AgentRunsError, caller: Caller | None, request_id: str) -> JSONResponse:  # noqa: PLR0911 - a table
    """Translate what the library raised: the table, a row a case, the narrower above the wider."""
    match error:
        case InvalidOptionError() | DefinitionError():
            return incident(error, request_id)  # the service's own words, not the client's
        case SchemaRejectedError(part=part) if part != "input":
            return incident(error, request_id)  # evidence and state are made by the service
        case InvalidValueError():
            status = 413 if error.reason.endswith("too_large") else 400
            return problem(status, type_name=error.type_name, reason=error.reason)
        case NotFoundError():
            return problem(404)  # unknown and another tenant's: one answer
        case AgentAdmissionConflictError():
            return incident(error, request_id)  # about ids that the service made itself
        case AgentSubmissionConflictError():
            may_know = caller is not None and caller.may(READ)
            return problem(409, reason="submission_key", run_id=str(error.run_id) if may_know else None)
        case ConflictError():
            return problem(409, reason="conflict")
        case RefusedError():
            return problem(409, reason=error.reason)
        case StoreError(retryable=True):
            return unavailable()
        case _:
            return incident(error, request_id)


def unavailable() -> JSONResponse:
    """Ask for another try, with the same key. What was sent may have happened."""
    return problem(503, headers=_RETRY_AFTER)


def incident(error: Exception, request_id: str) -> JSONResponse:
    """Give only the id under which the log has more: the class, and the sentence where the library vouches for it."""
    sentence = f": {error}" if isinstance(error, AgentRunsError) else ""
    _log.error("request %s: %s%s", request_id, type(error).__name__, sentence)
    return problem(500, request_id=request_id)


def install(app: FastAPI) -> None:
    """Translate every error that a route may leave by; the guard around the application answers for all others."""
    for kind in (
        AgentRunsError,
        DatabaseUnavailableError,
        OrderNotFoundError,
        OrderConflictError,
        RequestValidationError,
        HTTPException,
    ):
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> JSONResponse:  # noqa: PLR0911 - a table
    match error:
        case AgentRunsError():
            return of_runs(error, getattr(request.state, "caller", None), request.state.request_id)
        case DatabaseUnavailableError():
            return unavailable()
        case OrderNotFoundError():
            return problem(404)
        case OrderConflictError():
            return problem(409, reason=error.reason)
        case RequestValidationError():
            return _not_understood(error)
        case HTTPException():
            return problem(error.status_code, headers=error.headers)
        case _:
            return incident(error, request.state.request_id)


def _not_understood(error: RequestValidationError) -> JSONResponse:
    """Name the first member that is wrong, and the rule. What was sent is not repeated: it may hold the key."""
    first = error.errors()[0]
    is_ours = first["type"] not in ("extra_forbidden", "json_invalid")
    return problem(400, reason=first["type"], member=".".join(map(str, first["loc"])) if is_ours else None)
