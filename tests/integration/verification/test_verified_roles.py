"""What the current role has to be able to do, and what it should not be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import pytest
from sqlalchemy import Connection

from agentruns.errors import InvalidOptionError, SchemaVerificationError
from agentruns.store.verification import SchemaReport, verify_schema

Undone = Callable[[Callable[[Connection], Any]], Any]
Mode = Literal["warn", "require"]

OWNER = "the role owns the tables or acts for their owner, so nothing is refused to it"


def verified(
    undone: Undone, *statements: str, role: str = "agentruns_runtime", mode: Mode = "warn", job: Any = "runtime"
) -> SchemaReport:
    def work(connection: Connection) -> SchemaReport:
        for statement in (*statements, f"SET LOCAL ROLE {role}"):
            connection.exec_driver_sql(statement)
        return verify_schema(connection, privileges=mode, role=job)

    report: SchemaReport = undone(work)
    return report


def refused(undone: Undone, *statements: str, mode: Mode = "warn") -> SchemaVerificationError:
    with pytest.raises(SchemaVerificationError) as caught:
        verified(undone, *statements, mode=mode)
    return caught.value


def test_OPS_04_a_runtime_needs_no_more_than_its_own_privileges(
    undone: Undone, caplog: pytest.LogCaptureFixture
) -> None:
    assert verified(undone, mode="require").warnings == ()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


RELEASES = "GRANT INSERT ON agentruns.run_quarantine_releases TO agentruns_runtime"


def test_an_operator_is_held_against_its_own_table(undone: Undone, caplog: pytest.LogCaptureFixture) -> None:
    assert verified(undone, RELEASES, mode="require", job="operator").warnings == ()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    more = (RELEASES, "GRANT DELETE ON agentruns.runs TO agentruns_runtime")
    assert verified(undone, *more, job="operator").warnings == ("excess DELETE on runs",)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
        "the role may do more than an operator must: run `agentruns grants apply`, and connect as its operator role"
    ]
    assert verified(undone, RELEASES).warnings == ("excess INSERT on run_quarantine_releases",)
    with pytest.raises(SchemaVerificationError) as caught:
        verified(undone, job="operator")
    assert (caught.value.reason, caught.value.findings) == (
        "missing_privileges",
        ("missing INSERT on run_quarantine_releases",),
    )


@pytest.mark.parametrize("job", ["reader", "", None, ["runtime"]])
def test_no_other_table_can_be_named(undone: Undone, job: Any) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        verified(undone, job=job)
    assert (caught.value.option, caught.value.value, caught.value.bound) == ("role", ascii(job), "runtime or operator")


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("REVOKE INSERT ON agentruns.run_events FROM agentruns_runtime", "missing INSERT on run_events"),
        ("REVOKE SELECT ON agentruns.run_overview FROM agentruns_runtime", "missing SELECT on run_overview"),
        ("REVOKE UPDATE (status) ON agentruns.runs FROM agentruns_runtime", "missing UPDATE (status) on runs"),
    ],
)
@pytest.mark.parametrize("mode", ["warn", "require"])
def test_OPS_04_a_privilege_that_is_missing_is_refused(
    undone: Undone, statement: str, finding: str, mode: Mode
) -> None:
    error = refused(undone, statement, mode=mode)
    assert (error.reason, error.findings) == ("missing_privileges", (finding,))
    assert str(error) == (
        "the role may not do what it must: run `agentruns grants apply`"
        f" (reason=missing_privileges, schema=agentruns, {finding})"
    )


def test_OPS_04_a_role_that_cannot_read_the_revisions_is_refused(undone: Undone) -> None:
    for statement in (
        "REVOKE SELECT ON agentruns.applied_revisions FROM agentruns_runtime",
        "REVOKE USAGE ON SCHEMA agentruns FROM agentruns_runtime",
    ):
        assert refused(undone, statement).reason == "missing_privileges"


@pytest.mark.parametrize(
    ("statement", "excess"),
    [
        ("GRANT DELETE ON agentruns.runs TO agentruns_runtime", "DELETE on runs"),
        ("GRANT DELETE ON agentruns.runs TO PUBLIC", "DELETE on runs"),
        ("GRANT UPDATE (tenant_id) ON agentruns.runs TO agentruns_runtime", "UPDATE (tenant_id) on runs"),
        ("GRANT CREATE ON SCHEMA agentruns TO agentruns_runtime", "CREATE on the schema"),
        ("GRANT EXECUTE ON FUNCTION agentruns.forbid_change() TO PUBLIC", "EXECUTE on forbid_change"),
        (
            "GRANT SELECT ON agentruns.runs TO agentruns_runtime WITH GRANT OPTION",
            "SELECT on runs with grant option",
        ),
    ],
)
def test_OPS_04_what_a_runtime_should_not_be_able_to_do_is_one_warning(
    undone: Undone, statement: str, excess: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert verified(undone, statement).warnings == (f"excess {excess}",)
    (record,) = [record for record in caplog.records if record.name == "agentruns.store.verification"]
    assert (record.levelno, vars(record)["warnings"]) == (logging.WARNING, (f"excess {excess}",))
    error = refused(undone, statement, mode="require")
    assert (error.reason, error.findings) == ("excess_privileges", (f"excess {excess}",))


def test_OPS_04_a_warning_names_a_few_and_the_error_all(undone: Undone) -> None:
    everything = "GRANT TRUNCATE ON ALL TABLES IN SCHEMA agentruns TO agentruns_runtime"
    (warning,) = verified(undone, everything).warnings
    assert warning.startswith("excess TRUNCATE on agent_admissions, excess TRUNCATE on agent_admissions_json, ")
    assert warning.endswith(", 44 more")
    assert len(refused(undone, everything, mode="require").findings) == 49


def test_what_others_keep_in_the_schema_is_theirs_to_grant(undone: Undone) -> None:
    theirs = ("CREATE TABLE agentruns.theirs ()", "GRANT ALL ON agentruns.theirs TO agentruns_runtime")
    assert verified(undone, *theirs).warnings == ("unexpected table theirs",)
    assert verified(undone, *theirs, mode="require").warnings == ("unexpected table theirs",)


@pytest.mark.parametrize("role", ["agentruns", "agentruns_owner", "agentruns_deputy"])
def test_OPS_04_an_owner_and_who_acts_for_it_are_told_so_in_one_line(
    undone: Undone, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agentruns")
    deputy = "CREATE ROLE agentruns_deputy IN ROLE agentruns_owner"
    assert verified(undone, deputy, role=role).warnings == (OWNER,)
    assert [(record.levelno, vars(record)["warnings"]) for record in caplog.records] == [(logging.INFO, (OWNER,))]
    with pytest.raises(SchemaVerificationError) as caught:
        verified(undone, deputy, role=role, mode="require")
    assert (caught.value.reason, caught.value.findings) == ("excess_privileges", (OWNER,))
