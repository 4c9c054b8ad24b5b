from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from attrs import evolve, frozen

from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.executable import GraphNodeExecutor, GraphNodeScheduling
from agentruns.domain.graph.reducers import MergeReducer, ReplaceReducer
from agentruns.domain.identity import GraphReference, PrincipalIdentity
from agentruns.domain.scalars import NodeId, SubjectId
from agentruns.domain.schema import JsonSchemaRegistry, JsonSchemaRegistryBuilder
from agentruns.domain.uris import IssuerId
from agentruns.errors import DefinitionError, DeploymentError, ExecutableGraphUnavailableError
from agentruns.runtime import registry
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.registry import ExecutableGraphRegistry, ExecutableGraphRegistryBuilder

OWNER = PrincipalIdentity(issuer=IssuerId("https://example.org/"), subject=SubjectId("private-owner"))
ANYTHING: dict[str, Any] = {"type": "object"}


def bundle(name: str = "demo", version: str = "1.0.0", *, steps: int = 8, reducer: Any = None) -> GraphBundle:
    builder = GraphBuilder(
        name,
        version,
        input=ANYTHING,
        state=ANYTHING,
        output=ANYTHING,
        reducer=reducer,
        maximum_supersteps=steps,
        owner=OWNER,
    )

    @builder.node(entry=True, then="last")
    def first(_context: Any) -> None:
        return None

    @builder.node(terminal=True)
    async def last(_context: Any) -> None:
        return None

    return builder.build()


def schemas_of(*bundles: GraphBundle) -> JsonSchemaRegistry:
    builder = JsonSchemaRegistryBuilder()
    for each in bundles:
        each.register_schemas(builder)
    return builder.build()


def registered(*bundles: GraphBundle) -> ExecutableGraphRegistryBuilder:
    builder = ExecutableGraphRegistryBuilder(schemas_of(*bundles))
    for each in bundles:
        each.register(builder)
    return builder


def refusal(builder: ExecutableGraphRegistryBuilder) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        builder.build()
    assert caught.value.kind == "registry"
    assert "private-owner" not in str(caught.value)
    return caught.value


@frozen(kw_only=True, eq=False)
class Node:
    graph: Any
    node_id: Any
    scheduling: Any = GraphNodeScheduling.EXCLUSIVE

    def execute(self, context: object, /) -> object:
        return context


def test_a_graph_is_resolved_by_its_digest() -> None:
    one, two = bundle("one"), bundle("two")
    prices = object()
    builder = ExecutableGraphRegistryBuilder(schemas := schemas_of(one, two))
    one.register(builder)
    two.register(builder, accounting=prices)
    built = builder.build()
    assert isinstance(built, ExecutableGraphRegistry)
    assert built.schemas is schemas
    assert built.graph_digests == tuple(sorted((one.graph.definition_digest, two.graph.definition_digest)))
    graph = built.resolve(two.graph.definition_digest)
    assert graph.definition is two.graph
    assert graph.reducer.reference == two.graph.reducer
    assert dict(graph.executors) == {executor.node_id: executor for executor in two.executors}
    assert graph.schemas is schemas
    assert graph.accounting is prices
    assert built.resolve(one.graph.definition_digest).accounting is None
    assert built.resolve(two.graph.definition_digest) is graph


def test_an_unknown_graph_is_a_matter_of_deployment() -> None:
    built = registered(bundle()).build()
    unknown = plain_digest(b"{}")
    with pytest.raises(ExecutableGraphUnavailableError) as caught:
        built.resolve(unknown)
    assert (caught.value.reason, caught.value.graph) == ("not_installed", unknown)
    assert isinstance(caught.value, DeploymentError)


def test_registries_are_compared_by_identity() -> None:
    builder = registered(bundle())
    assert builder.build() != builder.build()


def test_an_empty_registry_executes_nothing() -> None:
    assert ExecutableGraphRegistryBuilder(schemas_of(bundle())).build().graph_digests == ()


def test_a_built_registry_does_not_grow() -> None:
    one, two = bundle("one"), bundle("two")
    builder = ExecutableGraphRegistryBuilder(schemas_of(one, two))
    one.register(builder)
    built = builder.build()
    two.register(builder)
    assert built.graph_digests == (one.graph.definition_digest,)
    assert len(builder.build().graph_digests) == 2


@pytest.mark.parametrize(
    ("constant", "reason", "register", "member"),
    [
        ("MAXIMUM_GRAPHS", "too_many_graphs", "register_graph", lambda given: given.graph),
        ("MAXIMUM_REDUCERS", "too_many_reducers", "register_reducer", lambda given: given.reducer),
        ("MAXIMUM_NODES", "too_many_nodes", "register_node", lambda given: given.executors[0]),
    ],
)
def test_too_many(monkeypatch: pytest.MonkeyPatch, constant: str, reason: str, register: str, member: Any) -> None:
    monkeypatch.setattr(registry, constant, 1)
    add = getattr(ExecutableGraphRegistryBuilder(schemas_of(bundle())), register)
    add(member(bundle("one")))
    with pytest.raises(DefinitionError) as caught:
        add(member(bundle("two", reducer=ReplaceReducer())))
    assert (caught.value.reason, caught.value.limit, caught.value.actual) == (reason, 1, 2)


def test_the_caps() -> None:
    assert (registry.MAXIMUM_GRAPHS, registry.MAXIMUM_REDUCERS, registry.MAXIMUM_NODES) == (1_024, 1_024, 65_536)


@pytest.mark.parametrize(
    ("register", "member", "reason"),
    [
        ("register_graph", lambda given: given.graph, "duplicate_graph"),
        ("register_reducer", lambda given: given.reducer, "duplicate_reducer"),
        ("register_node", lambda given: given.executors[1], "duplicate_node"),
    ],
)
def test_duplicates(register: str, member: Any, reason: str) -> None:
    given = bundle()
    builder = registered(given)
    with pytest.raises(DefinitionError) as caught:
        getattr(builder, register)(member(given))
    assert caught.value.reason == reason


def test_same_graph_identity_with_another_digest() -> None:
    builder = ExecutableGraphRegistryBuilder(schemas_of(bundle()))
    builder.register_graph(bundle(steps=8).graph)
    other = bundle(steps=9).graph
    with pytest.raises(DefinitionError) as caught:
        builder.register_graph(other)
    assert (caught.value.reason, caught.value.reference) == ("graph_mismatch", other.reference)


def test_same_reducer_identity_with_another_digest() -> None:
    builder = ExecutableGraphRegistryBuilder(schemas_of(bundle()))
    builder.register_reducer(ReplaceReducer())

    class Impostor(ReplaceReducer):
        pass

    changed = Impostor()
    reference = evolve(ReplaceReducer().reference, definition_digest=plain_digest(b"{}"))
    object.__setattr__(changed, "reference", reference)
    with pytest.raises(DefinitionError) as caught:
        builder.register_reducer(changed)
    assert (caught.value.reason, caught.value.reference) == ("reducer_mismatch", reference)


def test_an_executor_of_another_digest_at_registration() -> None:
    builder = registered(bundle(steps=8))
    stranger = bundle(steps=9).executors[0]
    with pytest.raises(DefinitionError) as caught:
        builder.register_node(stranger)
    assert (caught.value.reason, caught.value.node_id) == ("node_mismatch", NodeId("first"))


def test_an_executor_of_another_digest_registered_first() -> None:
    given = bundle(steps=8)
    builder = ExecutableGraphRegistryBuilder(schemas_of(given))
    builder.register_node(bundle(steps=9).executors[0])
    given.register(builder)
    error = refusal(builder)
    assert error.reason == "node_mismatch"
    assert error.findings == ("node_mismatch: node first names another definition of demo 1.0.0",)


def test_an_executor_whose_reference_differs_in_the_state_schema() -> None:
    given, other = bundle(), bundle("other")
    builder = ExecutableGraphRegistryBuilder(schemas_of(given))
    builder.register_graph(given.graph)
    builder.register_reducer(given.reducer)
    builder.register_node(given.executors[1])
    changed = evolve(given.graph.reference, state_schema=other.graph.state_schema)
    builder.register_node(Node(graph=changed, node_id=NodeId("first")))
    assert refusal(builder).findings == ("node_mismatch: node first names another definition of demo 1.0.0",)


def test_missing_schema() -> None:
    given = bundle()
    builder = ExecutableGraphRegistryBuilder(schemas_of(bundle("other")))
    given.register(builder)
    error = refusal(builder)
    assert error.reason == "missing_schema"
    graph = given.graph
    assert error.findings == (
        f"missing_schema: input_schema {graph.input_schema.id} of demo 1.0.0",
        f"missing_schema: state_schema {graph.state_schema.id} of demo 1.0.0",
        f"missing_schema: update_schema {graph.update_schema.id} of demo 1.0.0",
        f"missing_schema: output_schema {graph.output_schema.id} of demo 1.0.0",
    )


def test_missing_reducer_and_nodes_are_found_together() -> None:
    given = bundle(reducer=ReplaceReducer())
    builder = ExecutableGraphRegistryBuilder(schemas_of(given))
    builder.register_graph(given.graph)
    error = refusal(builder)
    assert error.reason == "missing_reducer"
    assert error.findings == (
        "missing_reducer: reducer.replace 1.0.0 of demo 1.0.0",
        "missing_node: node first of demo 1.0.0",
        "missing_node: node last of demo 1.0.0",
    )


def test_orphans() -> None:
    given = bundle()
    builder = registered(given)
    builder.register_reducer(ReplaceReducer())
    builder.register_node(Node(graph=given.graph.reference, node_id=NodeId("nobody")))
    builder.register_node(bundle("other").executors[0])
    error = refusal(builder)
    assert error.reason == "orphan_reducer"
    assert error.findings == (
        "orphan_reducer: no graph uses reducer.replace 1.0.0",
        "orphan_node: no graph has node nobody of demo 1.0.0",
        "orphan_node: no graph has node first of other 1.0.0",
    )


def test_findings_are_at_most_a_hundred() -> None:
    given = bundle()
    builder = registered(given)
    for number in range(150):
        builder.register_node(Node(graph=given.graph.reference, node_id=NodeId(f"n{number}")))
    assert len(refusal(builder).findings) == 100


class Hiding(Node):
    @property
    def hidden(self) -> object:
        raise RuntimeError("secret")


class Raising(Hiding):
    graph = Hiding.hidden


class TwoArguments(Node):
    def execute(self, _context: object, other: object) -> object:  # type: ignore[override]
        return other


class NoArgument(Node):
    def execute(self) -> object:  # type: ignore[override]
        return None


class Generator(Node):
    def execute(self, context: object, /) -> Iterator[object]:
        yield context


class AsyncGenerator(Node):
    async def execute(self, context: object, /) -> AsyncIterator[object]:
        yield context


class NotCallable(Node):
    execute = None  # type: ignore[assignment]


class Nothing:
    pass


def wrong_nodes() -> list[Any]:
    reference = bundle().graph.reference
    node_id = NodeId("first")
    raising = Raising.__new__(Raising)
    return [
        Nothing(),
        raising,
        Node(graph="demo", node_id=node_id),
        Node(graph=reference, node_id="first"),
        Node(graph=reference, node_id=node_id, scheduling="exclusive"),
        Node(graph=reference, node_id=node_id, scheduling=None),
        *(
            kind(graph=reference, node_id=node_id)
            for kind in (TwoArguments, NoArgument, Generator, AsyncGenerator, NotCallable)
        ),
    ]


@pytest.mark.parametrize("position", range(11))
def test_wrong_shape_of_a_node(position: int) -> None:
    builder = ExecutableGraphRegistryBuilder(schemas_of(bundle()))
    with pytest.raises(DefinitionError) as caught:
        builder.register_node(wrong_nodes()[position])
    assert (caught.value.kind, caught.value.reason) == ("registry", "wrong_shape")
    assert len(caught.value.findings) == 1


def test_wrong_shape_of_a_reducer() -> None:
    class OneArgument(ReplaceReducer):
        def reduce(self, state: Any) -> Any:  # type: ignore[override]
            return state

    class Yielding(ReplaceReducer):
        def reduce(self, state: Any, _updates: Sequence[Any]) -> Any:
            yield state

    class Anonymous:
        reference = "reducer"

        def reduce(self, state: Any, _updates: Sequence[Any]) -> Any:
            return state

    builder = ExecutableGraphRegistryBuilder(schemas_of(bundle()))
    for wrong in (OneArgument(), Yielding(), Anonymous(), Nothing()):
        with pytest.raises(DefinitionError) as caught:
            builder.register_reducer(wrong)  # type: ignore[arg-type]
        assert caught.value.reason == "wrong_shape"


def test_two_bundles_share_a_reducer() -> None:
    one, two = bundle("one"), bundle("two")
    assert one.reducer.reference == two.reducer.reference == MergeReducer().reference
    builder = registered(one, two)
    assert builder.has_reducer(one.reducer.reference)
    assert not builder.has_reducer(ReplaceReducer().reference)
    assert len(builder.build().graph_digests) == 2


def test_an_executor_may_have_any_class() -> None:
    given = bundle()
    builder = ExecutableGraphRegistryBuilder(schemas_of(given))
    builder.register_graph(given.graph)
    builder.register_reducer(given.reducer)
    own: list[GraphNodeExecutor] = [
        Node(graph=given.graph.reference, node_id=node.node_id) for node in given.graph.nodes
    ]
    for executor in own:
        builder.register_node(executor)
    assert list(builder.build().resolve(given.graph.definition_digest).executors.values()) == own
    assert isinstance(given.graph.reference, GraphReference)
