"""``agentruns graphs``: what a tenant has, pictures of it, and whether an application has what runs need."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import Connection, text

from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.ids import RunId
from agentruns.domain.lease import RunFence
from agentruns.domain.waits import NodeWait
from agentruns.domain.wire import to_wire
from agentruns.errors import NodeFailedError
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.store import AgentRunStore
from agentruns.store.statements import graphs as statements
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, builder, open_world, sleep_for_ever

Command = Callable[..., Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

UNKNOWN = "01890000-0000-7000-8000-000000000000"
NO_DIGEST = "sha256:" + "0" * 64
QUIET = ("--format", "json", "--quiet")
PICTURE = """\
flowchart TD
    start(("start"))
    n0["ask"]
    n1["begin"]
    n2["close"]
    stop(("end"))
    start --> n1
    n0 --> n2
    n0 -.->|"wait"| n2
    n1 --> n0
    n2 --> stop
"""


def begin(_context: Any) -> dict[str, bool]:
    return {"planted": True}


def finish(_context: Any) -> Finish:
    return Finish({})


def story(ask: Callable[[Any], Any]) -> GraphBundle:
    """A graph of three nodes, the same whatever the second one does; its state is private."""
    graph = builder()
    graph.node(name="begin", entry=True, then="ask")(begin)
    graph.node(name="ask", then="close", wait_to="close")(ask)
    graph.node(name="close", terminal=True)(finish)
    return graph.build()


def go_further(_context: Any) -> dict[str, bool]:
    return {}


def suspend(_context: Any) -> Suspend:
    return Suspend(NodeWait.timer(due_in=timedelta(days=1)))


def fail(_context: Any) -> None:
    raise NodeFailedError(failure=samples.failure())


def other_graph() -> GraphBundle:
    """A graph of another name, whose runs end at once."""
    document: dict[str, JsonTree] = {"type": "object"}
    graph = GraphBuilder(
        "other-graph", "1.0.0", input=document, state=document, output=document, owner=samples.principal()
    )
    graph.node(name="only", entry=True, terminal=True)(finish)
    return graph.build()


DIGEST = str(story(finish).graph.definition_digest)


def objects(ended: Any) -> list[dict[str, Any]]:
    assert (ended.code, ended.err) == (0, "")
    return [json.loads(line) for line in ended.out.splitlines()]


def error_of(ended: Any) -> tuple[int, str]:
    assert ended.out == ""
    return ended.code, json.loads(ended.err)["error"]["code"]


@pytest.fixture
def admit(run: Run, owner_url: str) -> Callable[..., Any]:
    """Admit a run of a graph, and drive it as far as it goes."""

    def call(bundle: GraphBundle, *, is_driven: bool = False) -> RunId:
        async def work() -> RunId:
            async with open_world(owner_url, bundle) as world:
                run_id = await world.submitted()
                if is_driven:
                    await world.driven(run_id)
                return run_id

        found: RunId = run(work())
        return found

    return call


@pytest.fixture
def app_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Make an application of some graphs, as an option names it."""

    def call(*graphs: GraphBundle) -> tuple[str, str]:
        module, deployment = ModuleType("holding_agents"), Deployment(issuer="https://shop.example/", subject="office")
        for graph in graphs:
            deployment.add(graph)
        monkeypatch.setattr(module, "deployment", deployment, raising=False)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return "--app", "holding_agents:deployment"

    return call


@pytest.fixture
def painted(agentruns: Command, database_url: str) -> Callable[[RunId], tuple[Any, ...]]:
    """Show the graph with a run on it: status, superstep and marks."""

    def call(run_id: RunId) -> tuple[Any, ...]:
        command = ("graphs", "show", TENANT.text, DIGEST, "--run", str(run_id), *QUIET)
        (found,) = objects(agentruns(*command, url=database_url))
        assert found["run"].pop("run_id") == str(run_id)
        return tuple(found["run"].values())

    return call


def test_graphs_are_listed_with_the_runs_that_pin_them(agentruns: Command, database_url: str, admit: Any) -> None:
    def listed(*options: str, tenant: str = TENANT.text) -> list[dict[str, Any]]:
        return objects(agentruns("graphs", "list", "--tenant", tenant, *options, *QUIET, url=database_url))

    used, idle = story(suspend), other_graph()
    admit(used, is_driven=True)
    admit(used)
    admit(idle, is_driven=True)
    found = listed()
    assert [(row["name"], row["version"], row["live_runs"]) for row in found] == [
        ("other-graph", "1.0.0", 0),
        ("sample-graph", "1.0.0", 2),
    ]
    assert [row["definition_digest"] for row in found] == [str(idle.graph.definition_digest), DIGEST]
    (row,) = listed("--in-use")
    assert row == found[1]
    assert (row["tenant_id"], row["issuer"], row["subject"], row["bytes"]) == (
        TENANT.text,
        "https://issuer.example/",
        "somebody",
        len(used.graph.canonical),
    )
    assert listed(tenant="elsewhere") == []
    table = agentruns("graphs", "list", "--tenant", TENANT.text, url=database_url)
    assert (table.code, table.out.count("-graph"), "planted" in table.out) == (0, 2, False)


def test_a_graph_is_shown_as_a_picture_and_as_its_definition(agentruns: Command, database_url: str, admit: Any) -> None:
    admit(story(finish))
    picture = agentruns("graphs", "show", TENANT.text, DIGEST, url=database_url)
    assert (picture.code, picture.out, picture.err) == (0, PICTURE, "")
    (found,) = objects(agentruns("graphs", "show", TENANT.text, DIGEST, *QUIET, url=database_url))
    assert found == {"definition": to_wire(story(finish).graph), "run": None}


def test_a_graph_that_the_tenant_does_not_have(agentruns: Command, database_url: str, admit: Any) -> None:
    admit(story(finish))
    unknown = agentruns("graphs", "show", TENANT.text, NO_DIGEST, *QUIET, url=database_url)
    assert error_of(unknown) == (3, "not_found")
    assert error_of(agentruns("graphs", "show", "elsewhere", DIGEST, *QUIET, url=database_url)) == (3, "not_found")


def test_a_damaged_definition_is_not_shown(
    agentruns: Command, database_url: str, owner_url: str, within: Within, admit: Any
) -> None:
    admit(story(finish))

    def damage(definition: bytes) -> Any:
        def work(connection: Connection) -> None:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            statement = text("UPDATE agentruns.graph_definitions SET definition = :definition")
            connection.execute(statement, {"definition": definition})

        within(owner_url, work)
        return agentruns("graphs", "show", TENANT.text, DIGEST, *QUIET, url=database_url)

    assert error_of(damage(other_graph().graph.canonical)) == (5, "corrupt_data")
    assert error_of(damage(b"{}")) == (5, "corrupt_data")


def test_a_run_is_painted_from_its_admission_to_its_end(painted: Any, admit: Any, run: Run, owner_url: str) -> None:
    fresh = admit(story(finish))
    assert painted(fresh) == ("active", 0, {"begin": "next"})
    waiting = admit(story(suspend), is_driven=True)
    assert painted(waiting) == ("waiting", 2, {"ask": "done", "begin": "done", "close": "waiting"})
    failed = admit(story(fail), is_driven=True)
    status, _, marks = painted(failed)
    assert (status, marks) == ("failed", {"ask": "failed", "begin": "done"})

    async def go_on() -> None:
        async with open_world(owner_url, story(go_further)) as world:
            await world.driven(fresh)

    run(go_on())
    status, _, marks = painted(fresh)
    assert (status, marks) == ("succeeded", {"ask": "done", "begin": "done", "close": "done"})


@pytest.fixture
def abandoned(run: Run, owner_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[RunId], None]:
    """Drive a run until its second node has started, and go without giving the lease back."""

    async def keep(_store: AgentRunStore, _fence: RunFence, *, delay: timedelta | None = None) -> None:
        assert delay is None

    async def work(run_id: RunId) -> None:
        async with open_world(owner_url, story(sleep_for_ever), lease=timedelta(minutes=5)) as world:
            driving = asyncio.create_task(world.driven(run_id))
            await world.until("graph-node-attempt-started", count=2)
            monkeypatch.setattr(AgentRunStore, "release", keep)
            world.shutdown.stop()
            await driving
            monkeypatch.undo()

    return lambda run_id: run(work(run_id))


def test_a_node_that_ran_often_is_marked_by_the_last_time(agentruns: Command, database_url: str, admit: Any) -> None:
    def again(context: Any) -> dict[str, bool]:
        if context.state:
            raise NodeFailedError(failure=samples.failure())
        return {"planted": True}

    graph = builder()
    graph.node(name="again", entry=True, then="again", terminal=True)(again)
    bundle = graph.build()
    run_id, digest = admit(bundle, is_driven=True), str(bundle.graph.definition_digest)
    (found,) = objects(agentruns("graphs", "show", TENANT.text, digest, "--run", str(run_id), *QUIET, url=database_url))
    assert (found["run"]["status"], found["run"]["marks"]) == ("failed", {"again": "failed"})


def test_a_node_runs_only_while_its_worker_has_the_run(
    painted: Any, abandoned: Any, admit: Any, run: Run, owner_url: str
) -> None:
    run_id = admit(story(sleep_for_ever))
    abandoned(run_id)
    assert painted(run_id) == ("active", 1, {"ask": "running", "begin": "done"})

    async def lose(*, to_another: bool) -> None:
        async with open_world(owner_url, story(finish), lease=timedelta(minutes=5)) as world:
            if to_another:
                await world.claimed(run_id)
            else:
                await world.expire_leases()

    run(lose(to_another=False))
    assert painted(run_id) == ("active", 1, {"ask": "next", "begin": "done"})
    run(lose(to_another=True))
    assert painted(run_id) == ("active", 1, {"ask": "next", "begin": "done"})


def test_the_picture_of_a_run_has_its_marks_and_nothing_private(
    agentruns: Command, database_url: str, abandoned: Any, admit: Any
) -> None:
    run_id = admit(story(sleep_for_ever))
    abandoned(run_id)
    shown = agentruns("graphs", "show", TENANT.text, DIGEST, "--run", str(run_id), url=database_url)
    assert (shown.code, shown.err) == (0, f"Run {run_id}: active, superstep 1\n")
    assert shown.out == (
        f"{PICTURE}    classDef done fill:#d5f5e3,stroke:#1e8449\n    class n1 done\n"
        "    classDef running fill:#d6eaf8,stroke:#2471a3\n    class n0 running\n"
    )


def test_a_run_of_another_graph_or_of_nobody(agentruns: Command, database_url: str, admit: Any) -> None:
    admit(story(finish))
    other = admit(other_graph())
    command = ("graphs", "show", TENANT.text, DIGEST, "--run")
    ended = agentruns(*command, str(other), url=database_url)
    digest = other_graph().graph.definition_digest
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1] == f"Error: the run is one of another graph: {digest}"
    assert error_of(agentruns(*command, UNKNOWN, *QUIET, url=database_url)) == (3, "run_not_found")


def test_an_application_must_hold_every_graph_that_a_live_run_pins(
    agentruns: Command, database_url: str, admit: Any, app_of: Any
) -> None:
    kept, retired = story(finish), other_graph()

    def checked(*graphs: GraphBundle) -> tuple[int, list[dict[str, Any]]]:
        ended = agentruns("graphs", "check", *app_of(*graphs), *QUIET, url=database_url)
        return ended.code, [json.loads(line) for line in ended.out.splitlines()]

    assert checked(kept) == (0, [])
    admit(retired, is_driven=True)
    assert checked(kept) == (0, [])
    admit(retired)
    admit(retired)
    admit(kept)
    missing = {
        "tenant_id": TENANT.text,
        "definition_digest": str(retired.graph.definition_digest),
        "name": "other-graph",
        "version": "1.0.0",
        "live_runs": 2,
    }
    assert checked(kept) == (5, [missing])
    assert checked(kept, retired) == (0, [])
    said = agentruns("graphs", "check", *app_of(kept), url=database_url)
    assert (said.code, said.err) == (5, "Graphs that live runs pin: 2; missing here: 1\n")


def test_live_runs_are_read_from_their_index_alone(within: Within, owner_url: str) -> None:
    def plan(connection: Connection) -> str:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        connection.execute(text("SET LOCAL enable_bitmapscan = off"))
        statement = str(statements.pinned().compile(dialect=connection.dialect))
        return "\n".join(connection.execute(text(f"EXPLAIN {statement}")).scalars())

    assert "Index Only Scan using ix_runs_live on runs" in within(owner_url, plan)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("list",), "Missing option '--tenant'."),
        (
            ("show", "t", "planted"),
            "Invalid value for 'DIGEST': wanted sha256: and 64 hexadecimal digits in lower case",
        ),
        (("show", "t", NO_DIGEST, "--run", "planted"), "Invalid value for '--run': wanted a UUID of version 7"),
        (("check",), "Missing option '--app'."),
        (("check", "--app", "nowhere"), "Invalid value for '--app': 'nowhere' is not MODULE:NAME"),
    ],
)
def test_wrong_usage_says_what_was_wanted(agentruns: Command, arguments: tuple[str, ...], sentence: str) -> None:
    ended = agentruns("graphs", *arguments, url="postgresql://127.0.0.1:1/none")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith(f"Error: {sentence}")
    assert "planted" not in ended.err


@pytest.mark.parametrize("command", [("list", "--tenant", "t"), ("show", "t", NO_DIGEST)], ids=" ".join)
def test_an_unmigrated_database(agentruns: Command, empty_database_url: str, command: tuple[str, ...]) -> None:
    assert agentruns("graphs", *command, url=empty_database_url).code == 6
