"""Which trouble is repeated, how often, and what is said when it does not pass."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from agentruns.errors import (
    CommitOutcomeUnknownError,
    DeploymentError,
    InvariantError,
    SchemaVerificationError,
    StoreUnavailableError,
)
from agentruns.runtime.retry import Retry, as_store_error
from agentruns.store.transient import Transient, transient

STATEMENT = "SELECT 'something private'"


class DriverError(Exception):
    """An error as the driver's adapter raises it."""

    def __init__(self, sqlstate: str | None, cause: BaseException | None = None) -> None:
        super().__init__(STATEMENT)
        self.sqlstate = sqlstate
        self.__cause__ = cause


def database_error(
    sqlstate: str | None, *, is_invalidated: bool = False, cause: BaseException | None = None
) -> DBAPIError:
    return DBAPIError(STATEMENT, {}, DriverError(sqlstate, cause), connection_invalidated=is_invalidated)


class InvalidCachedStatementError(Exception):
    """As the driver calls a plan that no longer fits its tables."""


class ForeignKeyViolation(Exception):  # noqa: N818
    """As the driver calls a violation, which knows its constraint."""

    constraint_name = "run_outcomes_run_fkey"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (database_error("40001"), ("40001", False, False)),
        (database_error("40P01"), ("40P01", False, False)),
        (database_error("55P03"), ("55P03", False, False)),
        (database_error("57014"), ("57014", False, False)),
        (database_error("53300"), ("53300", True, False)),
        (database_error("57P01"), ("57P01", True, True)),
        (database_error("08006"), ("08006", True, True)),
        (database_error("25006"), ("25006", True, False)),
        (database_error("57P03"), ("57P03", True, False)),
        (database_error(None, is_invalidated=True), ("", True, True)),
        (database_error("0A000", cause=InvalidCachedStatementError()), ("0A000", False, False)),
        (ConnectionRefusedError(), ("", True, False)),
        (PoolTimeoutError(), ("", True, False)),
        (TimeoutError(), ("", True, False)),
        (database_error("0A000"), None),
        (database_error("23514"), None),
        (database_error("23505"), None),
        (database_error(None), None),
        (ValueError(), None),
    ],
)
def test_trouble_is_told_by_class_and_sqlstate(error: Exception, expected: tuple[str, bool, bool] | None) -> None:
    wanted = None
    if expected is not None:
        sqlstate, is_lost, is_in_doubt = expected
        wanted = Transient(sqlstate=sqlstate, is_lost=is_lost, is_in_doubt=is_in_doubt)
    assert transient(error) == wanted


def run_of(*faults: BaseException, attempts: int = 3) -> tuple[Any, int]:
    """What a call answers, or raises, that meets these faults first; and how often it was made."""
    pending, calls = list(faults), 0

    async def call() -> str:
        nonlocal calls
        calls += 1
        if pending:
            raise pending.pop(0)
        return "answer"

    retry = Retry(attempts=attempts, initial_delay=timedelta(microseconds=1), schema="agentruns")

    async def attempt() -> Any:
        try:
            return await retry.run(call)
        except Exception as error:  # noqa: BLE001 - it is what the test looks at
            return error

    return asyncio.run(attempt()), calls


def test_passing_trouble_is_survived() -> None:
    assert run_of(database_error("40001"), ConnectionResetError()) == ("answer", 3)


def test_trouble_that_stays_is_said_with_its_last_state() -> None:
    error, calls = run_of(database_error("57P01"), database_error("57P01"), database_error("40P01"))
    assert type(error) is StoreUnavailableError
    assert (error.attempts, error.sqlstate, calls) == (3, "40P01", 3)


def test_when_every_try_may_have_committed_the_outcome_is_unknown() -> None:
    error, calls = run_of(*[database_error("57P01")] * 3)
    assert type(error) is CommitOutcomeUnknownError
    assert (error.attempts, calls) == (3, 3)
    assert error.retryable


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (database_error("42P01"), SchemaVerificationError, "not_migrated"),
        (database_error("42501"), SchemaVerificationError, "missing_privileges"),
        (database_error("3D000"), DeploymentError, "database_refused"),
        (database_error("28P01"), DeploymentError, "database_refused"),
        (database_error("AR005"), InvariantError, "append_only"),
        (database_error("22001"), InvariantError, "sqlstate_22001"),
        (
            IntegrityError(STATEMENT, {}, DriverError("23503", ForeignKeyViolation())),
            InvariantError,
            "run_outcomes_run_fkey",
        ),
    ],
)
def test_what_repeating_would_meet_again_is_raised_at_once_and_without_anything_private(
    fault: BaseException, kind: type[Exception], reason: str
) -> None:
    error, calls = run_of(fault)
    assert (type(error), error.reason, calls) == (kind, reason, 1)
    assert "private" not in f"{error!r}{error}"
    assert error.__cause__ is None
    assert error.__context__ is None


def test_an_error_of_the_caller_s_own_passes_through_untouched() -> None:
    fault = KeyError("mine")
    assert run_of(fault) == (fault, 1)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (database_error("40001"), StoreUnavailableError),
        (database_error("57P01"), CommitOutcomeUnknownError),
        (database_error("42P01"), SchemaVerificationError),
        (KeyError("mine"), KeyError),
    ],
)
def test_a_call_that_is_not_repeated_says_the_same(fault: BaseException, kind: type[Exception]) -> None:
    with pytest.raises(kind), as_store_error("agentruns"):
        raise fault


@pytest.mark.parametrize(("attempt", "longest"), [(1, 0.1), (2, 0.2), (3, 0.4), (10, 1.0)])
def test_pauses_double_up_to_a_second_with_full_jitter(
    monkeypatch: pytest.MonkeyPatch, attempt: int, longest: float
) -> None:
    pauses: list[float] = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    retry = Retry(attempts=3, initial_delay=timedelta(milliseconds=100), schema="agentruns")
    monkeypatch.setattr("agentruns.runtime.retry.asyncio.sleep", note)
    for _ in range(200):
        _drive(retry.pause(attempt))
    assert 0 <= min(pauses) < longest / 4
    assert longest * 3 / 4 < max(pauses) <= longest


def _drive(pause: Any) -> None:
    """Run a coroutine that awaits nothing real."""
    with pytest.raises(StopIteration):
        pause.send(None)
