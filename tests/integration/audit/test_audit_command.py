"""``agentruns audit`` as a person and as a program runs it, under a reader's privileges."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from attrs import frozen
from click.testing import CliRunner
from sqlalchemy import Connection, text

from agentruns.cli import main
from agentruns.cli.audit_display import AuditDisplay
from agentruns.operations import grants
from agentruns.operations.audit import AuditProgress, walking
from agentruns.runtime.deployment import Deployment
from agentruns.testing import samples
from agentruns.testing.drives import TENANT
from agentruns.testing.mixed_runs import mixed_graph

LAW = "the revision is the number of transitions, in the run row and in each event that states one"
READER = f"agentruns_reader_{os.getpid()}"


@frozen
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture(scope="session")
def reader_role(server: Any) -> Iterator[str]:
    server.execute(f"DROP ROLE IF EXISTS {READER}")
    server.execute(f"CREATE ROLE {READER} LOGIN")
    yield READER
    server.execute(f"DROP ROLE {READER}")


@pytest.fixture
def reader_url(reader_role: str, server: Any, database: str, within: Any, owner_url: str) -> str:
    """The test's database for a reader who may see the evidence."""

    def apply(connection: Connection) -> None:
        grants.apply(connection, grants.GrantedRoles(reader=reader_role, evidence=True))

    within(owner_url, apply)
    url: str = server.url(database, role=reader_role)
    return url


def agentruns(url: str, *arguments: str) -> Ended:
    done = CliRunner(env={"AGENTRUNS_DATABASE_URL": url}).invoke(main, ("audit", *arguments))
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return Ended(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def runs(audited: Callable[..., None]) -> list[str]:
    """Ids of three runs that wait to be claimed, in their order."""
    ids: list[str] = []

    async def work(mixed: Any) -> None:
        await mixed.bring(3, "queued")
        ids.extend(sorted(run_id.text for run_id in mixed.runs["queued"]))

    audited(work)
    return ids


@pytest.fixture
def damage(within: Any, owner_url: str) -> Callable[[str], None]:
    """Send a statement that no trigger and no foreign key stops."""

    def sent(statement: str) -> None:
        def work(connection: Connection) -> None:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(text(statement))

        within(owner_url, work)

    return sent


def test_a_whole_database_is_exit_0_and_one_total(runs: list[str], reader_url: str) -> None:
    ended = agentruns(reader_url, "all", "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    (total,) = ended.lines
    assert total.pop("seconds") > 0
    assert total == {
        "complete": True,
        "sample": None,
        "seed": None,
        "runs": 3,
        "events": 3,
        "findings": 0,
        "unproven": 3,
        "last_tenant": TENANT.text,
        "last_run": runs[-1],
    }


def test_findings_are_exit_5_and_a_line_each(runs: list[str], reader_url: str, damage: Callable[[str], None]) -> None:
    damage("UPDATE agentruns.runs SET revision = 7")
    ended = agentruns(reader_url, "tenant", TENANT.text, "--format", "json")
    *findings, total = ended.lines
    assert (ended.code, ended.err, total["findings"]) == (5, "", 3)
    assert findings[0] == {
        "label": "LIF-2",
        "law": LAW,
        "tenant_id": TENANT.text,
        "run_id": runs[0],
        "table": "runs",
        "column": "revision",
        "key": "",
        "found": "7",
        "wanted": "1",
        "place": "runs.revision",
        "sentence": f"LIF-2: {LAW}: found 7, wanted 1, at runs.revision in tenant {TENANT.text}, run {runs[0]}",
    }
    assert [each["run_id"] for each in findings] == runs


def test_a_person_reads_a_table_and_a_total(runs: list[str], reader_url: str, damage: Callable[[str], None]) -> None:
    damage(f"UPDATE agentruns.runs SET revision = 7 WHERE run_id = '{runs[1]}'")
    ended = agentruns(reader_url, "all")
    assert ended.code == 5
    header, _, finding = [line.split() for line in ended.out.splitlines() if line.strip()][:3]
    assert header == ["label", "tenant", "id", "run", "id", "place", "found", "wanted"]
    assert finding == ["LIF-2", TENANT.text, runs[1], "runs.revision", "7", "1"]
    assert "findings" in ended.out


def test_a_sample_says_its_share_and_its_seed(runs: list[str], reader_url: str, damage: Callable[[str], None]) -> None:
    damage("UPDATE agentruns.runs SET revision = 7")
    for scope in (("all",), ("tenant", TENANT.text)):
        ended = agentruns(reader_url, *scope, "--sample", "1", "--seed", "7", "--format", "json")
        *findings, total = ended.lines
        assert (ended.code, [each["run_id"] for each in findings]) == (5, runs)
        assert (total["sample"], total["seed"], total["runs"]) == (1.0, 7, 3)
    shown = agentruns(reader_url, "all", "--sample", "0.000000001", "--seed", "7")
    words = [line.split() for line in shown.out.splitlines()]
    assert shown.code == 0
    assert [each[-1] for each in words if each and each[0] in {"sample", "seed", "runs"}] == ["1e-09", "7", "0"]


@pytest.mark.parametrize("options", [("--seed", "7"), ("--sample", "0"), ("--sample", "nan"), ("--sample", "1.5")])
def test_a_sample_that_cannot_be_drawn_is_exit_2(reader_url: str, options: tuple[str, ...]) -> None:
    ended = agentruns(reader_url, "all", *options)
    assert (ended.code, ended.out) == (2, "")


def test_one_run_is_audited_alone_and_an_unknown_one_is_exit_3(
    runs: list[str], reader_url: str, damage: Callable[[str], None]
) -> None:
    damage(f"UPDATE agentruns.runs SET revision = 7 WHERE run_id = '{runs[1]}'")
    codes = [agentruns(reader_url, "run", TENANT.text, run).code for run in runs]
    assert codes == [0, 5, 0]
    ended = agentruns(reader_url, "run", "tenant-b", runs[0], "--format", "json")
    assert (ended.code, ended.out) == (3, "")
    assert json.loads(ended.err)["error"]["code"] == "run_not_found"


def test_a_signal_stops_after_the_batch_and_the_next_audit_goes_on(
    runs: list[str], reader_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "MAXIMUM_RUNS", 1)
    advance = AuditDisplay.advance

    def stopped(display: AuditDisplay, progress: AuditProgress) -> None:
        advance(display, progress)
        if progress.runs == 1:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(AuditDisplay, "advance", stopped)
        ended = agentruns(reader_url, "tenant", TENANT.text, "--format", "json")
    (total,) = ended.lines
    assert (ended.code, total["complete"], total["runs"], total["last_run"]) == (8, False, 1, runs[0])
    rest = agentruns(reader_url, "tenant", TENANT.text, "--resume-after", runs[0], "--format", "json")
    assert (rest.code, rest.lines[0]["complete"], rest.lines[0]["runs"]) == (0, True, 2)


def test_the_runs_of_an_application_are_folded_by_it(
    runs: list[str], reader_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment(issuer="https://shop.example/", subject="back-office")
    deployment.add(mixed_graph())
    deployment.add_schema(samples.schema_document("evidence"), name="evidence")
    module = ModuleType("audited_agents")
    monkeypatch.setattr(module, "deployment", deployment, raising=False)
    monkeypatch.setitem(sys.modules, "audited_agents", module)
    ended = agentruns(reader_url, "all", "--app", "audited_agents:deployment", "--format", "json")
    assert (ended.code, ended.lines[-1]["unproven"], len(runs)) == (0, 0, 3)


def test_a_reader_without_the_evidence_is_told_what_it_lacks(
    reader_role: str, reader_url: str, within: Any, owner_url: str
) -> None:
    def apply(connection: Connection) -> None:
        grants.apply(connection, grants.GrantedRoles(reader=reader_role))

    within(owner_url, apply)
    ended = agentruns(reader_url, "all", "--format", "json")
    assert (ended.code, ended.out) == (6, "")
    assert json.loads(ended.err)["error"]["code"] == "schema_verification.missing_privileges"
