"""``agentruns quarantine`` as a person runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import frozen
from click.testing import CliRunner

from agentruns.cli import main
from agentruns.domain.digests import plain_digest
from agentruns.domain.ids import QuarantineId, RunId
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.deployment import Deployment
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, open_world
from agentruns.testing.isolating import IsolatedRun, flip, isolate

Run = Callable[[Coroutine[Any, Any, Any]], Any]

WHO = samples.principal("planted-subject")
BY = ("--principal", str(WHO.issuer), str(WHO.subject), "--reason", "the planted page was restored")
QUIET = ("--format", "json", "--quiet")
EVIDENCE = b'{"planted": [1, 2]}'


@frozen
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> tuple[int, str]:
        assert self.out == ""
        assert "planted" not in self.err
        return self.code, json.loads(self.err)["error"]["code"]

    @property
    def document(self) -> Any:
        assert (self.code, self.err) == (0, "")
        assert "planted" not in self.out
        return json.loads(self.out)


@frozen
class Commands:
    """Run ``agentruns quarantine`` as an operator against the test's database.

    Attributes:
        isolated: a run that a drive has isolated; one bit of its first event is flipped.
    """

    run: Run
    url: str
    owner_url: str
    runtime_url: str
    nodes: Any
    isolated: IsolatedRun
    evidence: Path

    def __call__(self, *arguments: str, url: str = "") -> Ended:
        done = CliRunner(env={"AGENTRUNS_DATABASE_URL": url or self.url}).invoke(main, ("quarantine", *arguments))
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return Ended(done.exit_code, done.stdout, done.stderr)

    def release(self, *options: str, quarantine_id: str = "", run_id: str = "", url: str = "") -> Ended:
        ids = (run_id or self.isolated.run_id.text, quarantine_id or self.isolated.quarantine_id.text)
        return self("release", TENANT.text, *ids, *BY, "--evidence-file", str(self.evidence), *options, url=url)

    def within(self, work: Callable[[DriveWorld], Coroutine[Any, Any, Any]]) -> Any:
        async def opened() -> Any:
            async with open_world(self.owner_url, self.nodes.graph()) as world:
                return await work(world)

        return self.run(opened())

    def repaired(self) -> None:
        self.within(lambda world: flip(world, self.isolated.run_id))


@pytest.fixture
def urls(operator_url: str, owner_url: str, database_url: str) -> tuple[str, str, str]:
    """The database for an operator, for a superuser and for a runtime."""
    return operator_url, owner_url, database_url


@pytest.fixture
def commands(run: Run, urls: tuple[str, str, str], nodes: Any, tmp_path: Path) -> Commands:
    async def prepared() -> IsolatedRun:
        async with open_world(urls[1], nodes.graph()) as world:
            return await isolate(world, await world.submitted())

    evidence = tmp_path / "evidence.json"
    evidence.write_bytes(EVIDENCE)
    return Commands(run, *urls, nodes, run(prepared()), evidence)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, nodes: Any) -> tuple[str, str]:
    """An application with the run's graph, as an option names it."""
    module = ModuleType("repaired_agents")
    deployment = Deployment(issuer="https://shop.example/", subject="back-office")
    deployment.add(nodes.graph())
    deployment.add_schema(samples.schema_document("evidence"), name="evidence")
    monkeypatch.setattr(module, "deployment", deployment, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return "--app", "repaired_agents:deployment"


def test_quarantines_are_listed_and_shown_with_their_causes(commands: Commands) -> None:
    shown = commands("show", TENANT.text, commands.isolated.run_id.text, commands.isolated.quarantine_id.text, *QUIET)
    document = shown.document
    instant = Timestamp.parse(document["quarantined_at"])
    assert {name: document[name] for name in document if name not in ("quarantined_at", "bytes", "digest")} == {
        "tenant_id": TENANT.text,
        "run_id": commands.isolated.run_id.text,
        "quarantine_id": commands.isolated.quarantine_id.text,
        "cause_kind": "integrity_failure",
        "component": "chain",
        "epoch": 1,
        "released_at": None,
    }
    assert instant > Timestamp(0)
    assert document["digest"].startswith("sha256:")
    listed = commands("list", "--tenant", TENANT.text, *QUIET)
    assert (listed.code, [json.loads(line) for line in listed.out.splitlines()]) == (0, [document])
    table = commands("list", "--tenant", TENANT.text)
    assert (table.code, table.out.count("chain"), table.out.count("integrity_failure")) == (0, 1, 1)
    assert commands("list", "--tenant", "other", *QUIET) == Ended(0, "", "")


def test_a_run_that_was_put_right_is_released_and_says_what_was_verified(
    commands: Commands, app: tuple[str, str]
) -> None:
    commands.repaired()
    first = commands.release(*app, *QUIET).document
    verified = first.pop("verified")
    assert {name: first[name] for name in first if name not in ("released_at", "verification_digest")} == {
        "tenant_id": TENANT.text,
        "run_id": commands.isolated.run_id.text,
        "quarantine_id": commands.isolated.quarantine_id.text,
        "outcome": "committed",
        "cause": "integrity_failure",
        "component": "chain",
        "evidence_digest": str(plain_digest(b'{"planted":[1,2]}')),
    }
    head, size = verified.pop("head_digest"), verified.pop("bytes")
    assert head.startswith("sha256:")
    assert size > 0
    assert verified == {
        "events": 1,
        "status": "active",
        "supersteps": 0,
        "attempts": 0,
        "results": 0,
        "waits": 0,
        "calls": 0,
        "isolations": 1,
    }
    # Again, and without an application: the first one stands. White space in the evidence says nothing.
    commands.evidence.write_bytes(b' { "planted":[1,2]}\n')
    again = commands.release(*QUIET).document
    assert again == first | {"outcome": "idempotent", "verified": None}
    ids = (commands.isolated.run_id.text, commands.isolated.quarantine_id.text)
    shown = commands("show", TENANT.text, *ids, *QUIET).document
    assert shown["released_at"] == first["released_at"]

    async def drive(world: DriveWorld) -> None:
        assert (await world.driven(commands.isolated.run_id)).outcome is AgentLoopOutcome.SUCCEEDED

    commands.within(drive)
    table = commands.release()
    assert (table.code, table.err) == (0, "")
    assert "idempotent" in table.out


def test_what_was_verified_is_told_to_a_person(commands: Commands, app: tuple[str, str]) -> None:
    commands.repaired()
    table = commands.release(*app)
    assert (table.code, table.err) == (0, "")
    words = [line.split() for line in table.out.splitlines()]
    assert ["cause", "integrity_failure"] in words
    assert ["component", "chain"] in words
    assert ["verified", "events", "1"] in words


def test_what_does_not_verify_stays_and_says_where(commands: Commands, app: tuple[str, str]) -> None:
    refused = commands.release(*app, *QUIET)
    assert refused.error == (4, "refused.not_releasable")
    error = json.loads(refused.err)["error"]
    assert error == {
        "code": "refused.not_releasable",
        "message": (
            "The quarantine was not released "
            f"(reason=not_releasable, tenant_id={TENANT}, run_id={commands.isolated.run_id}, found=chain)"
        ),
        "id": commands.isolated.run_id.text,
        "action": "look at what was found, and repeat when it is put right",
        "retryable": False,
    }
    commands.repaired()
    assert commands.release(*app, *QUIET, quarantine_id=QuarantineId.generate().text).error == (
        4,
        "refused.not_releasable",
    )
    assert commands.release(*app, *QUIET).code == 0
    commands.evidence.write_bytes(b'{"planted": 3}')
    assert commands.release(*app, *QUIET).error == (4, "refused.not_releasable")


def test_what_is_not_there(commands: Commands, app: tuple[str, str]) -> None:
    assert commands.release(*app, *QUIET, run_id=RunId.generate().text).error == (3, "run_not_found")
    ids = (commands.isolated.run_id.text, QuarantineId.generate().text)
    assert commands("show", TENANT.text, *ids, *QUIET).error == (3, "not_found")


def test_the_runtime_role_may_not(commands: Commands, app: tuple[str, str]) -> None:
    commands.repaired()
    refused = commands.release(*app, *QUIET, url=commands.runtime_url)
    assert refused.error == (6, "schema_verification.missing_privileges")
    assert commands.release(*app, *QUIET).code == 0


def test_wrong_usage_says_what_was_wanted(commands: Commands, app: tuple[str, str]) -> None:
    commands.repaired()
    without = commands.release()
    assert (without.code, without.out) == (2, "")
    assert without.err.splitlines()[-1] == (
        "Error: a run is verified with its graph: name the application with --app MODULE:NAME"
    )
    commands.evidence.write_bytes(b"planted")
    assert commands.release(*app, *QUIET).error == (2, "invalid_json.invalid_json")
    wrong = commands("show", TENANT.text, commands.isolated.run_id.text, "planted")
    assert wrong.code == 2
    assert wrong.err.splitlines()[-1].startswith("Error: Invalid value for 'QUARANTINE': wanted a UUID of version 7")
    assert "planted" not in wrong.err
