"""``agentruns waits``: what runs wait for, and answers from the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from attrs import define, field
from sqlalchemy import Connection, text

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.identity import SchemaReference
from agentruns.domain.ids import EventId, RunId, WaitId
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.waits import AnyNodeWait, NodeWait
from agentruns.domain.wire import to_json
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.standard_schemas import register_standard_schemas
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, builder, open_world

Command = Callable[..., Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

UNKNOWN = "01890000-0000-7000-8000-000000000000"
WHO = samples.principal("planted-subject")
BY = ("--principal", str(WHO.issuer), str(WHO.subject), "--reason", "the planted claim was seen")
QUIET = ("--format", "json", "--quiet")


def payload(schema: SchemaReference, data: Any) -> JournalPayload:
    return JournalPayload(schema=schema, kind=JournalEventKind("answer"), data=BoundedJson.of(data))


def details_schema() -> SchemaReference:
    """The document of the library's own that any process has."""
    (found,) = [each for each in register_standard_schemas(JsonSchemaRegistryBuilder()) if "details" in each.id.text]
    return found


@define
class Asking:
    """A run that waits for an approval, and what the node after it read.

    Attributes:
        scopes: what whoever answers must have.
        more: what it waits for besides.
        approval: the id of the approval.
    """

    scopes: tuple[str, ...] = ()
    more: tuple[AnyNodeWait, ...] = ()
    approval: WaitId = field(factory=WaitId.generate)
    read: list[Any] = field(factory=list)

    def graph(self) -> GraphBundle:
        graph = builder()

        async def ask(_context: Any) -> Suspend:
            request = payload(samples.schema_reference("evidence"), "planted question")
            approval = NodeWait.interrupt("approval", request=request, scopes=self.scopes, id=self.approval)
            return Suspend(approval, *self.more)

        async def go_on(context: Any) -> Finish:
            self.read.append(await context.resolutions())
            return Finish({})

        graph.node(name="ask", entry=True, then="go_on", wait_to="go_on")(ask)
        graph.node(name="go_on", terminal=True)(go_on)
        return graph.build()

    async def asleep(self, url: str) -> RunId:
        """Bring a run to where it waits."""
        async with open_world(url, self.graph()) as world:
            run_id = await world.submitted()
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.WAITING
            return run_id


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """An application with the graph of :class:`Asking`, as an option names it."""
    module = ModuleType("approving_agents")
    deployment = Deployment(issuer="https://shop.example/", subject="back-office")
    deployment.add(Asking().graph())
    monkeypatch.setattr(module, "deployment", deployment, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return "--app", "approving_agents:deployment"


@pytest.fixture
def resolve(agentruns: Command, database_url: str, tmp_path: Path) -> Command:
    """Answer a wait with a document in a file."""

    def call(run_id: RunId, wait_id: WaitId, answer: bytes, *options: str) -> Any:
        file = tmp_path / "answer.json"
        file.write_bytes(answer)
        named = ("--payload-file", str(file), *BY, *options)
        return agentruns("waits", "resolve", TENANT.text, str(run_id), str(wait_id), *named, url=database_url)

    return call


@pytest.fixture
def listed(agentruns: Command, database_url: str) -> Callable[..., list[dict[str, Any]]]:
    """List what runs wait for."""

    def call(*options: str) -> list[dict[str, Any]]:
        ended = agentruns("waits", "list", "--tenant", TENANT.text, *options, *QUIET, url=database_url)
        assert (ended.code, ended.err) == (0, "")
        assert "planted" not in ended.out
        return [json.loads(line) for line in ended.out.splitlines()]

    return call


def state_schema() -> SchemaReference:
    """The document of the application's own."""
    return Asking().graph().graph.state_schema


def error_of(ended: Any) -> tuple[int, str]:
    assert ended.out == ""
    assert "planted" not in ended.err
    return ended.code, json.loads(ended.err)["error"]["code"]


def test_what_runs_wait_for_is_listed_without_what_was_asked(
    agentruns: Command, listed: Any, run: Run, owner_url: str, database_url: str
) -> None:
    due, expiry = Timestamp.parse("2999-01-02T03:04:05.000006Z"), Timestamp.parse("2998-01-02T03:04:05.000006Z")
    request = payload(samples.schema_reference("evidence"), "planted")
    timer = NodeWait.timer(due_at=due)
    expiring = NodeWait.interrupt("input", request=request, expires_at=expiry)
    first, second = Asking(more=(timer, expiring)), Asking()
    ids = [str(run(asking.asleep(owner_url))) for asking in (first, second)]

    found = listed("--run", ids[0])
    assert {(row["wait_id"], row["kind"], row["due_at"], row["expires_at"]) for row in found} == {
        (str(first.approval), "approval", None, None),
        (str(timer.wait_id), "sleep", str(due), None),
        (str(expiring.wait_id), "input", None, str(expiry)),
    }
    assert [row["run_id"] for row in found] == [ids[0]] * 3
    assert all(row["registered_at"] and row["digest"].startswith("sha256:") and row["bytes"] > 0 for row in found)
    assert [row["run_id"] for row in listed()] == [ids[0]] * 3 + [ids[1]]
    assert agentruns("waits", "list", "--tenant", "other", *QUIET, url=database_url).out == ""
    table = agentruns("waits", "list", "--tenant", TENANT.text, url=database_url)
    assert (table.code, table.out.count("approval"), "planted" in table.out) == (0, 2, False)


def test_an_answer_lets_the_run_go_on_and_keeps_who_and_why(
    resolve: Command, listed: Any, run: Run, owner_url: str, app: tuple[str, str]
) -> None:
    asking, event_id = Asking(), str(EventId.generate())
    run_id = run(asking.asleep(owner_url))
    answer = payload(state_schema(), {"planted": True})
    ended = resolve(run_id, asking.approval, to_json(answer), *app, "--event-id", event_id, "--format", "json")
    assert ended.code == 0
    assert ended.err == f"If the answer is lost, repeat this with --event-id {event_id}\n"
    expected = {
        "tenant_id": TENANT.text,
        "run_id": str(run_id),
        "wait_id": str(asking.approval),
        "event_id": event_id,
        "outcome": "committed",
        "status": "active",
        "revision": 3,
    }
    assert json.loads(ended.out) == expected
    assert listed() == []

    async def go_on() -> None:
        async with open_world(owner_url, asking.graph()) as world:
            assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
            assert b"planted" not in to_json(await world.loaded(run_id))

    run(go_on())
    ((settled,),) = asking.read
    assert settled.resolution.payload == answer
    resolver = settled.resolution.resolver
    assert (resolver.principal, resolver.reason, tuple(resolver.scopes)) == (WHO, BY[-1], ())
    again = resolve(run_id, asking.approval, to_json(answer), *app, "--event-id", event_id, *QUIET)
    assert json.loads(again.out) == expected | {"outcome": "idempotent", "status": "succeeded", "revision": 4}
    other = to_json(payload(state_schema(), {"planted": False}))
    assert error_of(resolve(run_id, asking.approval, other, *app, "--event-id", event_id, *QUIET)) == (4, "id_conflict")
    assert error_of(resolve(run_id, asking.approval, other, *app, *QUIET)) == (4, "wait_already_settled.resolved")


def test_an_answer_in_a_document_of_the_library_needs_no_application(
    resolve: Command, run: Run, owner_url: str
) -> None:
    asking = Asking(scopes=("answer:planted", "read"))
    run_id = run(asking.asleep(owner_url))
    answer = to_json(payload(details_schema(), {"exception_type": "planted"}))
    few = resolve(run_id, asking.approval, answer, "--scope", "read", *QUIET)
    assert error_of(few) == (4, "resolver_not_permitted.not_permitted")
    enough = resolve(run_id, asking.approval, answer, "--scope", "answer:planted", "--scope", "read", *QUIET)
    assert (enough.code, enough.err, json.loads(enough.out)["outcome"]) == (0, "", "committed")


def test_what_is_not_there(resolve: Command, run: Run, owner_url: str) -> None:
    asking = Asking()
    run_id = run(asking.asleep(owner_url))
    answer = to_json(payload(details_schema(), {"exception_type": "planted"}))
    assert error_of(resolve(run_id, WaitId.generate(), answer, *QUIET)) == (3, "not_found")
    assert error_of(resolve(RunId.generate(), asking.approval, answer, *QUIET)) == (3, "run_not_found")


def test_an_answer_that_cannot_stand_is_not_sent(resolve: Command, app: tuple[str, str]) -> None:
    def refused(answer: bytes, *options: str) -> tuple[int, str]:
        return error_of(resolve(RunId(UNKNOWN), WaitId(UNKNOWN), answer, *options, *QUIET))

    assert refused(b"planted") == (2, "invalid_json.invalid_json")
    assert refused(b'{"kind":"answer","data":"planted"}') == (2, "invalid_value.missing_member")
    assert refused(to_json(payload(details_schema(), {"planted": 1}))) == (2, "schema_rejected.schema_rejected")
    foreign = to_json(payload(samples.schema_reference("evidence"), "planted"))
    assert refused(foreign) == (2, "usage")
    assert refused(foreign, *app) == (4, "schema_unavailable.not_installed")


def test_without_the_schema_the_application_is_asked_for(resolve: Command) -> None:
    foreign = to_json(payload(samples.schema_reference("evidence"), "planted"))
    ended = resolve(RunId(UNKNOWN), WaitId(UNKNOWN), foreign)
    assert ended.err.splitlines()[-1] == (
        "Error: the answer's schema is none of the library's: name the application with --app MODULE:NAME"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("list", "--tenant", ".."), "Invalid value for '--tenant': wanted 1 to 128 of the characters"),
        (("list", "--tenant", "t", "--run", "planted"), "Invalid value for '--run': wanted a UUID of version 7"),
        (("resolve", "t", UNKNOWN, "planted"), "Invalid value for 'WAIT': wanted a UUID of version 7"),
        (("resolve", "t", UNKNOWN, UNKNOWN, *BY), "Missing option '--payload-file'."),
        (("resolve", "t", UNKNOWN, UNKNOWN, *BY, "--payload-file", "/nonexistent"), "Invalid value for '--payload-fi"),
        (
            ("resolve", "t", UNKNOWN, UNKNOWN, *BY, "--payload-file", __file__, "--scope", "pla nted"),
            "Invalid value for '--scope': wanted 1 to 256 printable ASCII characters without space",
        ),
    ],
)
def test_wrong_usage_says_what_was_wanted(agentruns: Command, arguments: tuple[str, ...], sentence: str) -> None:
    ended = agentruns("waits", *arguments, url="postgresql://127.0.0.1:1/none")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith(f"Error: {sentence}")
    assert "planted" not in ended.err


def test_more_than_a_page_is_said(
    agentruns: Command, database_url: str, owner_url: str, within: Within, run: Run
) -> None:
    run(Asking().asleep(owner_url))

    def multiply(connection: Connection) -> None:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(
            text(
                "INSERT INTO agentruns.run_waits SELECT (r).* FROM (SELECT jsonb_populate_record(w, jsonb_build_object("
                "'wait_id', '01890000-0000-7000-8000-' || lpad(n::text, 12, '0'))) AS r"
                " FROM agentruns.run_waits AS w, generate_series(1, 100) AS n) AS made"
            )
        )

    within(owner_url, multiply)
    ended = agentruns("waits", "list", "--tenant", TENANT.text, "--format", "json", url=database_url)
    assert (ended.code, len(ended.out.splitlines())) == (0, 100)
    assert ended.err == "There are more: name a run with --run\n"
