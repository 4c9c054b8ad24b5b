"""``agentruns db verify`` and ``agentruns db manifest``."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from sqlalchemy import Connection, text

Command = Callable[..., Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

NEWER = """
INSERT INTO agentruns.applied_revisions
SELECT 17, 'agentruns_0017', checksum, 16, applied_at, applied_by, '9.9' FROM agentruns.applied_revisions
WHERE number = 16
"""
TABLES = ("runs", "run_events", "run_checkpoints", "node_attempts", "node_results", "scheduler_fairness_reservations")
OWNER = "the role owns the tables or acts for their owner, so nothing is refused to it"


def execute(within: Within, url: str, *statements: str) -> None:
    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement))

    within(url, work)


def test_a_runtime_verifies_whatever_is_asked_for(agentruns: Command, database_url: str) -> None:
    ended = agentruns(
        "db", "verify", "--strict", "--privileges", "require", "--format", "json", "--quiet", url=database_url
    )
    assert (ended.code, ended.err) == (0, "")
    report = json.loads(ended.out)
    assert report.pop("server")
    assert report == {
        "schema": "agentruns",
        "revision": "agentruns_0016",
        "revisions": 16,
        "newer": [],
        "warnings": [],
        "verified": True,
    }


def test_an_owner_is_told_that_nothing_is_refused_to_it(agentruns: Command, owner_url: str) -> None:
    warned = agentruns("db", "verify", "--format", "json", url=owner_url)
    assert (warned.code, json.loads(warned.out)["warnings"]) == (0, [OWNER])
    refused = agentruns("db", "verify", "--privileges", "require", url=owner_url)
    assert refused.code == 5
    assert OWNER in refused.out
    assert refused.err == (
        "Error: The role may do what it must not"
        f" (reason=excess_privileges, schema=agentruns, {OWNER}): run `agentruns grants apply`\n"
    )


def test_an_operator_says_that_it_is_one(agentruns: Command, database_url: str, within: Within) -> None:
    strict = ("db", "verify", "--privileges", "require", "--format", "json")
    assert agentruns(*strict, "--role", "operator", url=database_url).code == 6
    execute(within, database_url, "GRANT INSERT ON agentruns.run_quarantine_releases TO agentruns_runtime")
    assert agentruns(*strict, "--role", "operator", url=database_url).code == 0
    assert agentruns(*strict, url=database_url).code == 5


def test_a_newer_schema_passes_unless_it_is_strict(agentruns: Command, database_url: str, within: Within) -> None:
    execute(within, database_url, NEWER)
    ended = agentruns("db", "verify", "--format", "json", url=database_url)
    assert (ended.code, json.loads(ended.out)["newer"]) == (0, ["agentruns_0017"])
    assert agentruns("db", "verify", "--strict", url=database_url).code == 6


def test_all_findings_are_data_and_the_first_are_in_the_sentence(
    agentruns: Command, database_url: str, within: Within
) -> None:
    execute(within, database_url, *(f"ALTER TABLE agentruns.runs ADD c{number:02} text" for number in range(12)))
    findings = [f"unexpected column runs.c{number:02}" for number in range(12)]
    ended = agentruns("db", "verify", "--format", "json", url=database_url)
    assert ended.code == 6
    assert json.loads(ended.out) == {"schema": "agentruns", "verified": False, "findings": findings}
    error = json.loads(ended.err)["error"]
    assert error["code"] == "schema_verification.incomplete"
    assert error["message"] == (
        f"Objects are missing or different (reason=incomplete, schema=agentruns, {', '.join(findings[:10])}, 2 more)"
    )
    assert error["action"] == "restore them as the migrations made them"
    table = agentruns("db", "verify", url=database_url)
    assert table.code == 6
    assert [line.rstrip() for line in table.out.splitlines()] == [
        "schema    agentruns",
        "verified  no",
        f"findings  {findings[0]}",
        *(f"          {finding}" for finding in findings[1:]),
    ]


def test_the_table_is_read_in_a_hundred_columns(agentruns: Command, database_url: str, within: Within) -> None:
    execute(within, database_url, *(f"CREATE TABLE agentruns.{'x' * 40}{number} ()" for number in range(4)))
    table = agentruns("db", "verify", url=database_url)
    assert table.code == 0
    assert [line.rstrip() for line in table.out.splitlines()[2:]] == [
        "revision   agentruns_0016",
        "revisions  16",
        "newer",
        f"warnings   unexpected table {'x' * 40}0",
        *(f"           unexpected table {'x' * 40}{number}" for number in range(1, 4)),
        "verified   yes",
    ]
    execute(within, database_url, *(f"GRANT DELETE ON agentruns.{name} TO agentruns_runtime" for name in TABLES))
    table = agentruns("db", "verify", "--privileges", "require", url=database_url)
    assert table.code == 5
    assert max(map(len, table.out.splitlines())) <= 100
    warned = agentruns("db", "verify", url=database_url)
    assert max(map(len, warned.out.splitlines())) <= 100


def test_a_missing_privilege_is_an_unusable_schema(agentruns: Command, database_url: str, within: Within) -> None:
    execute(within, database_url, "REVOKE INSERT ON agentruns.runs FROM agentruns_runtime")
    ended = agentruns("db", "verify", "--format", "json", url=database_url)
    assert (ended.code, json.loads(ended.out)["findings"]) == (6, ["missing INSERT on runs"])


def test_manifest_is_written_anew_to_the_same_bytes(agentruns: Command, database_url: str, owner_url: str) -> None:
    shipped = files("agentruns.migrations").joinpath("manifest.json").read_text("utf-8")
    for url in (database_url, owner_url):
        ended = agentruns("db", "manifest", url=url)
        assert (ended.code, ended.err) == (0, "")
        assert ended.out == shipped


def test_manifest_is_made_from_the_schema_of_its_name_only(agentruns: Command, empty_database_url: str) -> None:
    assert agentruns("db", "manifest", "--schema", "r", url=empty_database_url).code == 2
    assert agentruns("db", "manifest", url=empty_database_url).code == 6
