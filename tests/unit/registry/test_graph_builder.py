from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import plain_digest
from agentruns.domain.failure import NeverRetry, SafeAfter
from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.graph.reducers import MergeReducer, ReplaceReducer
from agentruns.domain.graph.returns import Continue, Finish, Route, Suspend
from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.scalars import NodeId, RouteId, SubjectId
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.uris import IssuerId
from agentruns.domain.waits import NodeWait
from agentruns.errors import DefinitionError, InvalidJsonError, NodeFailedError, SchemaRejectedError
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.node_retry import NodeRetry
from agentruns.runtime.registry import ExecutableGraphRegistryBuilder

OWNER = PrincipalIdentity(issuer=IssuerId("https://example.org/"), subject=SubjectId("private-owner"))
DIALECT = "https://json-schema.org/draft/2020-12/schema"
STATE: dict[str, Any] = {
    "type": "object",
    "properties": {"notes": {"type": "array"}, "n": {"type": "integer"}},
    "required": ["notes"],
}


@frozen
class Context:
    attempt: int = 1


def builder(**options: Any) -> GraphBuilder:
    defaults: dict[str, Any] = {
        "input": {"type": "object"},
        "state": STATE,
        "output": {"type": "object"},
        "owner": OWNER,
    }
    return GraphBuilder("demo.graph", "1.2.3", **defaults | options)


def one_node(function: Callable[..., Any], **options: Any) -> GraphBundle:
    graph = builder()
    graph.node(**{"entry": True, "terminal": True, "name": "only", **options})(function)
    return graph.build()


def executed(function: Callable[..., Any], *, attempt: int = 1, **options: Any) -> Any:
    executor = one_node(function, **options).executors[0]
    returned = executor.execute(Context(attempt=attempt))
    return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned


async def _awaited(returned: Any) -> Any:
    return await returned


def nothing(context: Any) -> None: ...


def refunds() -> GraphBuilder:
    graph = builder(reducer=MergeReducer(fields={"notes": "append"}), maximum_supersteps=32, maximum_parallelism=4)

    @graph.node(entry=True, then="assess")
    async def collect(_context: Any) -> dict[str, Any]:
        return {"notes": [1]}

    @graph.node(routes={"pay": "pay_out", "ask": ["ask_human", "pay_out"]}, retry=NodeRetry(on=(TimeoutError,)))
    async def assess(_context: Any) -> Route:
        return Route("pay")

    @graph.node(wait_to="pay_out", scheduling=GraphNodeScheduling.JOURNAL_ISOLATED)
    def ask_human(_context: Any) -> Suspend:
        return Suspend(NodeWait.timer(due_in=timedelta(days=2)))

    @graph.node(terminal=True, routes={"pay": "assess"})
    async def pay_out(_context: Any) -> Finish:
        return Finish({"paid": True})

    return graph


def test_a_whole_graph() -> None:
    graph = refunds().build().graph
    assert graph.identity.owner == OWNER
    assert (str(graph.identity.capability.name), str(graph.identity.capability.version)) == ("demo.graph", "1.2.3")
    assert [str(node_id) for node_id in graph.entry_nodes] == ["collect"]
    assert [str(node.node_id) for node in graph.nodes] == ["ask_human", "assess", "collect", "pay_out"]
    assert (int(graph.limits.maximum_supersteps), int(graph.limits.maximum_parallelism)) == (32, 4)
    assert graph.reducer == MergeReducer(fields={"notes": "append"}).reference
    assess = graph.node(NodeId("assess"))
    assert [(str(route.route_id), [str(each) for each in route.successors]) for route in assess.routes] == [
        ("assess.ask", ["ask_human", "pay_out"]),
        ("assess.pay", ["pay_out"]),
    ]
    pay_out = graph.node(NodeId("pay_out"))
    assert (pay_out.terminal, [str(route.route_id) for route in pay_out.routes]) == (True, ["pay_out.pay"])
    ask = graph.node(NodeId("ask_human"))
    assert ask.wait_to is not None
    assert [str(each) for each in ask.wait_to] == ["pay_out"]


def test_the_definition_does_not_depend_on_code_or_retries() -> None:
    graph = builder()
    for name in ("a", "b"):
        graph.node(name=name, entry=True, terminal=True, retry=NodeRetry(on=(OSError,)))(nothing)
    other = builder()
    for name in ("b", "a"):
        other.node(name=name, entry=True, terminal=True)(lambda _context: None)
    assert graph.build().graph.definition_digest == other.build().graph.definition_digest


def test_executors_are_bound_to_the_graph_in_the_order_of_ids() -> None:
    bundle = refunds().build()
    assert [str(executor.node_id) for executor in bundle.executors] == ["ask_human", "assess", "collect", "pay_out"]
    assert {executor.graph for executor in bundle.executors} == {bundle.graph.reference}
    assert [executor.scheduling for executor in bundle.executors] == [
        GraphNodeScheduling.JOURNAL_ISOLATED,
        GraphNodeScheduling.EXCLUSIVE,
        GraphNodeScheduling.EXCLUSIVE,
        GraphNodeScheduling.EXCLUSIVE,
    ]
    assert [inspect.iscoroutinefunction(executor.execute) for executor in bundle.executors] == [False, True, True, True]


def test_a_bundle_is_registered_and_built() -> None:
    bundle = refunds().build()
    schemas = JsonSchemaRegistryBuilder()
    bundle.register_schemas(schemas)
    bundle.register_schemas(schemas)
    registry = ExecutableGraphRegistryBuilder(schemas.build())
    bundle.register(registry, accounting="prices")
    built = registry.build()
    assert built.resolve(bundle.graph.definition_digest).accounting == "prices"


def test_decorated_functions_are_given_back() -> None:
    assert builder().node(terminal=True)(nothing) is nothing


# --- schemas ---------------------------------------------------------------------------------------------------------


class Model:
    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"title": "Model", "type": "object", "required": ["a"]}


def document(bundle: GraphBundle, role: str) -> Any:
    return json.loads(bundle.schemas[["input", "state", "update", "output"].index(role)].document)


def test_schemas_from_dict_file_and_class(tmp_path: Path) -> None:
    path = tmp_path / "output.json"
    path.write_text('{"type": "object", "title": "from a file"}')
    graph = builder(input=Model, output=path)
    graph.node(entry=True, terminal=True)(nothing)
    path.unlink()
    bundle = graph.build()
    owner = plain_digest(b'{"issuer":"https://example.org/","subject":"private-owner"}').raw.hex()[:32]
    prefix = f"https://agentruns.invalid/graphs/{owner}/demo.graph"
    assert document(bundle, "input") == {
        "$schema": DIALECT,
        "$id": f"{prefix}/input/1.2.3",
        "title": "Model",
        "type": "object",
        "required": ["a"],
    }
    assert document(bundle, "output") == {
        "$schema": DIALECT,
        "$id": f"{prefix}/output/1.2.3",
        "title": "from a file",
        "type": "object",
    }
    assert document(bundle, "state") == {"$schema": DIALECT, "$id": f"{prefix}/state/1.2.3", **STATE}
    assert [str(schema.reference.version) for schema in bundle.schemas] == ["1.2.3"] * 4
    assert bundle.graph.input_schema == bundle.schemas[0].reference
    assert bundle.graph.state_schema == bundle.schemas[1].reference
    assert bundle.graph.update_schema == bundle.schemas[2].reference
    assert bundle.graph.output_schema == bundle.schemas[3].reference
    assert all(schema.reference.digest == plain_digest(schema.document) for schema in bundle.schemas)


def test_update_defaults_to_the_state_without_required() -> None:
    state = {**STATE, "$id": "https://example.org/schemas/state/4.5.6"}
    graph = builder(state=state)
    graph.node(entry=True, terminal=True)(nothing)
    bundle = graph.build()
    assert str(bundle.graph.state_schema.id) == "https://example.org/schemas/state/4.5.6"
    assert str(bundle.graph.state_schema.version) == "4.5.6"
    update = document(bundle, "update")
    assert update.pop("$id").endswith("/demo.graph/update/1.2.3")
    assert update == {"$schema": DIALECT, "type": "object", "properties": STATE["properties"]}
    schemas = JsonSchemaRegistryBuilder()
    bundle.register_schemas(schemas)
    built = schemas.build()
    built.validate(bundle.graph.update_schema, BoundedJson.of({"n": 1}))
    with pytest.raises(SchemaRejectedError):
        built.validate(bundle.graph.state_schema, BoundedJson.of({"n": 1}))


def test_an_own_update_schema_and_an_id_without_version() -> None:
    graph = builder(update={"$id": "https://example.org/update", "type": "object"})
    graph.node(entry=True, terminal=True)(nothing)
    reference = graph.build().graph.update_schema
    assert (str(reference.id), str(reference.version)) == ("https://example.org/update", "1.2.3")


def test_changing_the_dict_afterwards_changes_nothing() -> None:
    state: dict[str, Any] = {"type": "object"}
    graph = builder(state=state)
    graph.node(entry=True, terminal=True)(nothing)
    before = graph.build().graph.definition_digest
    state["type"] = "string"
    assert graph.build().graph.definition_digest == before


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("schema.json", "unknown_schema_source"),
        (None, "unknown_schema_source"),
        (int, "unknown_schema_source"),
    ],
)
def test_what_is_no_schema(source: Any, reason: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        builder(state=source)
    assert (caught.value.kind, caught.value.reason) == ("graph", reason)
    assert "state" in caught.value.findings[0]


def test_a_file_that_is_no_object_or_repeats_a_name(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("[]")
    with pytest.raises(DefinitionError) as refused:
        builder(state=path)
    assert refused.value.reason == "schema_not_an_object"
    path.write_text('{"a":1,"\\u0061":2}')
    with pytest.raises(InvalidJsonError) as caught:
        builder(state=path)
    assert caught.value.reason == "duplicate_key"


def test_an_id_that_is_no_text() -> None:
    graph = builder(state={"$id": 5})
    graph.node(entry=True, terminal=True)(nothing)
    with pytest.raises(DefinitionError) as caught:
        graph.build()
    assert caught.value.reason == "invalid_schema_id"


# --- owner -----------------------------------------------------------------------------------------------------------


def test_the_owner_may_be_left_to_build() -> None:
    graph = builder(owner=None)
    graph.node(entry=True, terminal=True)(nothing)
    with pytest.raises(DefinitionError) as caught:
        graph.build()
    assert caught.value.reason == "owner_missing"
    assert graph.build(owner=OWNER).graph.identity.owner == OWNER


def test_the_builder_keeps_its_own_owner() -> None:
    other = PrincipalIdentity(issuer=IssuerId("https://example.org/"), subject=SubjectId("another"))
    graph = builder()
    graph.node(entry=True, terminal=True)(nothing)
    assert graph.build(owner=other).graph.identity.owner == OWNER


def test_two_owners_have_two_schemas() -> None:
    other = PrincipalIdentity(issuer=IssuerId("https://example.org/"), subject=SubjectId("another"))
    graph = builder(owner=None)
    graph.node(entry=True, terminal=True)(nothing)
    assert graph.build(owner=OWNER).graph.state_schema.id != graph.build(owner=other).graph.state_schema.id


# --- what is wrong with nodes -----------------------------------------------------------------------------------------


def refused(graph: GraphBuilder) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        graph.build()
    assert caught.value.kind == "graph"
    return caught.value


def generator(context: Any) -> Any:
    yield context


def two(context: Any, other: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "reason", "finding"),
    [
        (two, {}, "wrong_arity", "bad: the function must take exactly one argument, the context"),
        (generator, {}, "generator", "bad: the function is a generator; return a result instead"),
        (nothing, {"terminal": False}, "no_control", "bad: give it then, routes, wait_to or terminal"),
        (nothing, {"then": ()}, "empty_successors", "bad: then names no node"),
        (nothing, {"routes": {"x": []}}, "empty_successors", "bad: route x names no node"),
        (nothing, {"then": ["good", "good"]}, "duplicate_successor", "bad: then names a node twice"),
        (
            nothing,
            {"wait_to": "nobody"},
            "missing_successor_node",
            "bad: wait_to leads to nobody, and no node is called so",
        ),
    ],
)
def test_Q2_the_node_is_named(function: Callable[..., Any], options: dict[str, Any], reason: str, finding: str) -> None:
    graph = builder()
    graph.node(name="good", entry=True, then="bad")(nothing)
    graph.node(**{"name": "bad", "terminal": True, **options})(function)
    error = refused(graph)
    assert (error.reason, error.node_id, error.findings) == (reason, NodeId("bad"), (finding,))


def test_two_nodes_with_one_name() -> None:
    graph = builder()
    graph.node(name="a", entry=True, terminal=True)(nothing)
    graph.node(name="a", terminal=True)(nothing)
    error = refused(graph)
    assert (error.reason, error.node_id) == ("duplicate_node", NodeId("a"))


def test_everything_is_found_at_once() -> None:
    graph = builder()
    graph.node(name="a", entry=True, then="b")(two)
    graph.node(name="c")(generator)
    assert refused(graph).findings == (
        "a: the function must take exactly one argument, the context",
        "a: then leads to b, and no node is called so",
        "c: the function is a generator; return a result instead",
        "c: give it then, routes, wait_to or terminal",
    )


def test_what_only_compiling_sees() -> None:
    assert refused(builder()).reason == "empty_nodes"
    graph = builder()
    graph.node(name="a", terminal=True)(nothing)
    assert refused(graph).reason == "empty_entry_nodes"
    graph.node(name="b", entry=True, then="b")(nothing)
    error = refused(graph)
    assert (error.reason, error.node_id) == ("unreachable_node", NodeId("a"))


# --- execution -------------------------------------------------------------------------------------------------------


@frozen
class Dumping:
    tree: Any

    def model_dump(self, *, mode: str) -> Any:
        assert mode == "json"
        return self.tree


def dumping(tree: Any) -> Any:
    return Dumping(tree)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, None),
        ({"a": 1}, {"a": 1}),
        ("text", "text"),
        (dumping({"a": 1}), {"a": 1}),
        (Continue(dumping({"a": 1})), Continue({"a": 1})),
        (Finish(dumping({"a": 1}), dumping({"b": 2})), Finish({"a": 1}, {"b": 2})),
        (Route("pay", dumping({"a": 1})), Route(RouteId("only.pay"), {"a": 1})),
        (Route("only.pay"), Route("only.pay")),
        (Route("other"), Route("other")),
        (Dumping, Dumping),
    ],
)
def test_what_a_function_returns_is_translated(returned: Any, expected: Any) -> None:
    options: dict[str, Any] = {"routes": {"pay": "only"}}

    def plain(_context: Any) -> Any:
        return returned

    async def asynchronous(_context: Any) -> Any:
        return returned

    assert executed(plain, **options) == expected
    assert executed(asynchronous, **options) == expected


def test_waits_stay_as_they_are() -> None:
    wait = NodeWait.timer(due_in=timedelta(days=2))
    returned = executed(lambda _context: Suspend(wait, update=dumping({"a": 1})), wait_to="only")
    assert returned == Suspend(wait, update={"a": 1})


def test_a_coroutine_from_a_plain_function_is_closed_and_handed_on() -> None:
    async def hidden() -> None: ...

    executor = one_node(lambda _context: hidden()).executors[0]
    returned = executor.execute(Context())
    assert inspect.iscoroutine(returned)
    assert inspect.getcoroutinestate(returned) == inspect.CORO_CLOSED


@pytest.mark.parametrize("attempt", [1, 2, 3])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_listed_exception_becomes_a_declared_failure(*, asynchronous: bool, attempt: int) -> None:
    cause = TimeoutError("secret")

    def plain(_context: Any) -> None:
        raise cause

    async def on_loop(_context: Any) -> None:
        raise cause

    retry = NodeRetry(on=(TimeoutError,), delay=0.25, factor=2, attempts=3)
    with pytest.raises(NodeFailedError) as caught:
        executed(on_loop if asynchronous else plain, attempt=attempt, retry=retry)
    expected = NeverRetry() if attempt == 3 else SafeAfter(delay=DurationMillis(250 * attempt))
    assert caught.value.failure.retry_advice == expected
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("retry", [None, NodeRetry(on=(OSError,)), NodeRetry(on=(Exception,))])
def test_what_is_not_listed_or_already_declared_passes_through(retry: NodeRetry | None) -> None:
    failure = NodeRetry(on=(OSError,)).failure(OSError(), attempt=1)
    raised = NodeFailedError(failure=failure) if retry and Exception in retry.on else ValueError("x")

    def plain(_context: Any) -> None:
        raise raised

    async def on_loop(_context: Any) -> None:
        raise raised

    for function in (plain, on_loop):
        with pytest.raises(type(raised)) as caught:
            executed(function, retry=retry)
        assert caught.value is raised


def test_a_reducer_of_ones_own() -> None:
    graph = builder(reducer=ReplaceReducer())
    graph.node(entry=True, terminal=True)(nothing)
    bundle = graph.build()
    assert bundle.graph.reducer == ReplaceReducer().reference
    assert bundle.reducer.reference == bundle.graph.reducer


def test_the_reducer_merges_by_default() -> None:
    assert one_node(nothing).graph.reducer == MergeReducer().reference
