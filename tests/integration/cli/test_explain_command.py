"""``agentruns runs explain``: the table for people, the document for programs, and how the command ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.runtime.deployment import Deployment
from agentruns.testing.drives import TENANT, chain, open_world
from agentruns.testing.movable_clock import MovableClock

Command = Callable[..., Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]

GRAPH = chain(a=lambda _context: Finish({}))
NAME = TENANT.text
UNKNOWN = "01890000-0000-7000-8000-000000000000"
NOON = datetime(2040, 1, 1, 12, tzinfo=UTC)
READY = (
    "The run has been ready since 2040-01-01 12:00:00Z, for 5 min, and was never claimed. The tenant has 0 live leases."
)
SERVE = f"start a worker that has the graph and serves tenant {NAME}"


@pytest.fixture
def ready(owner_url: str, database_url: str, run: Run) -> str:
    """A run that was ready at noon, at five past noon."""

    async def work() -> RunId:
        clock = MovableClock(owner_url)
        await clock.install()
        await clock.set(NOON)
        async with open_world(owner_url, GRAPH, store_url=database_url) as world:
            world.store.clock.monotonic = lambda: 0.0
            run_id = await world.submitted()
        await clock.advance(timedelta(minutes=5))
        return run_id

    run_id: RunId = run(work())
    return run_id.text


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> str:
    """An application that has another graph."""
    module: Any = ModuleType("explaining_app")
    module.deployment = Deployment(issuer="https://example.com/", subject="explaining")
    module.deployment.add(chain(b=lambda _context: Finish({})))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return f"{module.__name__}:deployment"


def test_a_program_reads_one_document(agentruns: Command, database_url: str, ready: str, app: str) -> None:
    command = ("runs", "explain", NAME, ready, "--format", "json")
    shown = agentruns(*command, url=database_url)
    assert (shown.code, shown.err) == (0, "")
    assert json.loads(shown.out) == {
        "tenant_id": NAME,
        "run_id": ready,
        "verdict": "stuck",
        "observed_at": "2040-01-01T12:05:00.000000Z",
        "next_action": SERVE,
        "reasons": [{"code": "never_claimed", "sentence": READY, "action": SERVE, "needs_action": True}],
    }
    with_app = json.loads(agentruns(*command, "--app", app, url=database_url).out)
    assert [reason["code"] for reason in with_app["reasons"]] == ["graph_not_deployed", "never_claimed"]
    assert with_app["next_action"] == f"deploy a worker that has the graph and serves tenant {NAME}"


def test_a_person_reads_a_verdict_and_a_table(agentruns: Command, database_url: str, ready: str) -> None:
    shown = agentruns("runs", "explain", NAME, ready, url=database_url)
    assert (shown.code, shown.err) == (0, "")
    assert [line.strip().split(maxsplit=2) for line in shown.out.splitlines()[:5]] == [
        ["tenant", "id", NAME],
        ["run", "id", ready],
        ["verdict", "stuck"],
        ["observed", "at", "2040-01-01 12:05:00Z"],
        ["next", "action", SERVE],
    ]
    (row,) = (line for line in shown.out.splitlines() if "never_claimed" in line)
    assert [part.strip() for part in row.split("  ") if part] == ["never_claimed", READY, SERVE]


def test_a_run_that_is_over_has_no_table(agentruns: Command, owner_url: str, database_url: str, run: Run) -> None:
    async def work() -> RunId:
        async with open_world(owner_url, GRAPH, store_url=database_url) as world:
            run_id = await world.submitted()
            await world.driven(run_id)
            return run_id

    run_id = run(work()).text
    shown = agentruns("runs", "explain", NAME, run_id, url=database_url)
    assert (shown.code, len(shown.out.splitlines())) == (0, 5)
    document = json.loads(agentruns("runs", "explain", NAME, run_id, "--format", "json", url=database_url).out)
    assert (document["verdict"], document["next_action"], document["reasons"]) == ("finished", None, [])


def test_a_run_that_is_not_there_ends_with_3(agentruns: Command, database_url: str, ready: str) -> None:
    for tenant, run_id in ((NAME, UNKNOWN), ("another", ready)):
        refused = agentruns("runs", "explain", tenant, run_id, "--format", "json", url=database_url)
        assert (refused.code, refused.out) == (3, "")
        error = json.loads(refused.err)["error"]
        assert (error["code"], error["id"]) == ("run_not_found", run_id)


def test_what_is_no_run_and_no_application_is_wrong_usage(agentruns: Command, database_url: str) -> None:
    assert agentruns("runs", "explain", NAME, "seven", url=database_url).code == 2
    assert agentruns("runs", "explain", NAME, UNKNOWN, "--app", "nowhere", url=database_url).code == 2
