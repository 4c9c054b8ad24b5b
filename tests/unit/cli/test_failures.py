"""Exit codes and sentences of failures."""

from __future__ import annotations

import json

import click
import pytest
from sqlalchemy.exc import DBAPIError

from agentruns.cli.failures import Failure, failure_of, report
from agentruns.cli.options import Format
from agentruns.domain.ids import RunId
from agentruns.errors import (
    AgentRunsError,
    CommitOutcomeUnknownError,
    ContentionError,
    CorruptDataError,
    DeploymentError,
    IdConflictError,
    InvalidOptionError,
    InvariantError,
    RefusedError,
    RunNotFoundError,
    SchemaVerificationError,
    StoreUnavailableError,
    UnitOfWorkError,
)

RUN = RunId.generate()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvariantError(reason="impossible"), 1),
        (UnitOfWorkError(reason="autocommit"), 1),
        (InvalidOptionError(option="schema", value="x", bound="y"), 2),
        (RunNotFoundError(tenant_id="t", id=RUN), 3),
        (RefusedError(reason="downgrade_destroys_evidence"), 4),
        (IdConflictError(kind="event", id=RUN), 4),
        (DeploymentError(reason="embedded_version"), 4),
        (DeploymentError(reason="embedded_missing"), 4),
        (DeploymentError(reason="embedded_failed"), 7),
        (DeploymentError(reason="embedded_stopped"), 7),
        (CorruptDataError(component="run_events.digest"), 5),
        (SchemaVerificationError(reason="not_migrated", schema="agentruns"), 6),
        (StoreUnavailableError(attempts=3), 7),
        (ConnectionError(), 7),
        (CommitOutcomeUnknownError(attempts=3), 7),
        (ContentionError(reason="migration_lock"), 7),
    ],
)
def test_each_class_has_its_exit_code(error: AgentRunsError, code: int) -> None:
    assert failure_of(error).exit_code == code


def test_a_failure_says_what_happened_and_what_to_do() -> None:
    assert failure_of(RunNotFoundError(tenant_id="t", id=RUN)) == Failure(
        exit_code=3,
        code="run_not_found",
        message=f"The tenant has no such run (tenant_id=t, id={RUN}, kind=run)",
        id=str(RUN),
        action="check the tenant and the id",
    )
    assert failure_of(SchemaVerificationError(reason="not_migrated", schema="here")) == Failure(
        exit_code=6,
        code="schema_verification.not_migrated",
        message="The schema has not been migrated (reason=not_migrated, schema=here)",
        action="run `agentruns db upgrade`",
    )
    assert failure_of(ContentionError(reason="migration_lock", holder="pid 7")).retryable is True


class _DriverError(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("secret text of the driver")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "code", "retryable"),
    [
        ("28P01", 7, False),
        ("28000", 7, False),
        ("3D000", 7, False),
        ("57P03", 7, True),
        ("53300", 7, True),
        ("40001", 7, True),
        ("42501", 6, False),
        ("42P01", 6, False),
        ("XX000", 1, False),
        (None, 1, False),
    ],
)
def test_OPS_11_a_database_error_is_told_by_its_state_alone(
    sqlstate: str | None, code: int, *, retryable: bool
) -> None:
    failure = failure_of(DBAPIError("SELECT secret", {"password": "secret"}, _DriverError(sqlstate)))
    assert (failure.exit_code, failure.retryable) == (code, retryable)
    assert "secret" not in json.dumps(failure.document)


def test_OPS_11_an_unknown_exception_is_named_by_its_type_alone() -> None:
    assert failure_of(ValueError("secret")) == Failure(
        exit_code=1, code="defect", message="An unexpected error (ValueError)", action="report it"
    )


def test_a_file_that_cannot_be_used_is_named() -> None:
    failure = failure_of(FileNotFoundError(2, "No such file or directory", "input.txt"))
    assert (failure.exit_code, failure.message) == (2, "No such file or directory: input.txt")


def test_a_report_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(StoreUnavailableError(attempts=1), Format.TABLE) == 7
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err == ("Error: The database is not available (attempts=1): try again with the same key and ids\n")


def test_a_report_in_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(StoreUnavailableError(attempts=1), Format.JSON) == 7
    assert json.loads(capsys.readouterr().err) == {
        "error": {
            "code": "store_unavailable",
            "message": "The database is not available (attempts=1)",
            "id": None,
            "action": "try again with the same key and ids",
            "retryable": True,
        }
    }


def test_wrong_usage_in_json_is_an_object_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(click.UsageError("no such option"), Format.JSON) == 2
    assert json.loads(capsys.readouterr().err)["error"]["message"] == "no such option"
