"""What must hold before graphs, reducers and executors become a registry."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.graph.executable import GraphNodeExecutor, GraphNodeScheduling
from agentruns.domain.graph.reducers import GraphReducer, GraphReducerReference
from agentruns.domain.identity import CapabilityIdentity, GraphReference
from agentruns.domain.scalars import NodeId
from agentruns.domain.schema import JsonSchemaRegistry
from agentruns.errors import DefinitionError
from agentruns.runtime.node_shape import is_generator, takes

MAXIMUM_FINDINGS = 100


@define(kw_only=True)
class Collected:
    """Hold what a builder was given.

    Attributes:
        executors: by the digest of the graph that each names and the id of its node.
        accounting: what prices the calls of a graph, by the graph's digest.
    """

    schemas: JsonSchemaRegistry
    graphs: dict[Digest, CompiledGraph] = field(factory=dict)
    reducers: dict[GraphReducerReference, GraphReducer] = field(factory=dict)
    executors: dict[tuple[Digest, NodeId], GraphNodeExecutor] = field(factory=dict)
    accounting: dict[Digest, object | None] = field(factory=dict)


@frozen(kw_only=True)
class RegistryFinding:
    """Say what does not fit: one line of a refused build."""

    reason: str
    about: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.about}"


def findings(collected: Collected) -> list[RegistryFinding]:
    """Give everything that is wrong: what does not match, then what is missing, then what nobody uses."""
    return [*_mismatched(collected), *_missing(collected), *_orphans(collected)]


def _mismatched(collected: Collected) -> Iterator[RegistryFinding]:
    known = {graph.identity: graph.reference for graph in collected.graphs.values()}
    for executor in collected.executors.values():
        if known.get(executor.graph.identity, executor.graph) != executor.graph:
            about = f"node {executor.node_id} names another definition of {_name(executor.graph.identity)}"
            yield RegistryFinding(reason="node_mismatch", about=about)


def _missing(collected: Collected) -> Iterator[RegistryFinding]:
    for graph in collected.graphs.values():
        name = _name(graph.identity)
        for role in ("input_schema", "state_schema", "update_schema", "output_schema"):
            reference = getattr(graph, role)
            if reference not in collected.schemas:
                yield RegistryFinding(reason="missing_schema", about=f"{role} {reference.id} of {name}")
        if graph.reducer not in collected.reducers:
            yield RegistryFinding(reason="missing_reducer", about=f"{_name(graph.reducer.identity)} of {name}")
        for node in graph.nodes:
            if (graph.definition_digest, node.node_id) not in collected.executors:
                yield RegistryFinding(reason="missing_node", about=f"node {node.node_id} of {name}")


def _orphans(collected: Collected) -> Iterator[RegistryFinding]:
    used = {graph.reducer for graph in collected.graphs.values()}
    for reference in collected.reducers:
        if reference not in used:
            yield RegistryFinding(reason="orphan_reducer", about=f"no graph uses {_name(reference.identity)}")
    nodes = {digest: {node.node_id for node in graph.nodes} for digest, graph in collected.graphs.items()}
    known = {graph.identity for graph in collected.graphs.values()}
    for (digest, node_id), executor in collected.executors.items():
        is_mismatched = digest not in nodes and executor.graph.identity in known
        if not is_mismatched and node_id not in nodes.get(digest, ()):
            about = f"no graph has node {node_id} of {_name(executor.graph.identity)}"
            yield RegistryFinding(reason="orphan_node", about=about)


def _name(identity: CapabilityIdentity) -> str:
    """Name a definition without its owner, who is private."""
    return f"{identity.capability.name} {identity.capability.version}"


def shape_of_node(executor: GraphNodeExecutor) -> tuple[GraphReference, NodeId]:
    """Read what an executor says about itself.

    Raises:
        DefinitionError: ``wrong_shape``: it hides its graph, node or scheduling, its ``execute`` does not take one
            argument, or is a generator.
    """
    graph, node_id = _member(executor, "graph"), _member(executor, "node_id")
    if not isinstance(graph, GraphReference) or not isinstance(node_id, NodeId):
        raise DefinitionError(kind="registry", reason="wrong_shape", findings=("graph or node_id is hidden",))
    execute, scheduling = _member(executor, "execute"), _member(executor, "scheduling")
    if not callable(execute) or not takes(execute, count=1) or is_generator(execute):
        raise _wrong_node(graph, node_id, "execute must take one argument and be no generator")
    if not isinstance(scheduling, GraphNodeScheduling):
        raise _wrong_node(graph, node_id, "scheduling is neither EXCLUSIVE nor JOURNAL_ISOLATED")
    return graph, node_id


def shape_of_reducer(reducer: GraphReducer) -> GraphReducerReference:
    """Read what a reducer says about itself.

    Raises:
        DefinitionError: ``wrong_shape``: it hides its reference, or its ``reduce`` does not take state and updates.
    """
    reference, reduce = _member(reducer, "reference"), _member(reducer, "reduce")
    is_reducer = callable(reduce) and takes(reduce, count=2) and not is_generator(reduce)
    if not isinstance(reference, GraphReducerReference) or not is_reducer:
        raise DefinitionError(kind="registry", reason="wrong_shape", findings=("not a reducer",))
    return reference


def _wrong_node(graph: GraphReference, node_id: NodeId, finding: str) -> DefinitionError:
    return DefinitionError(kind="registry", reason="wrong_shape", reference=graph, node_id=node_id, findings=(finding,))


def _member(subject: object, name: str) -> object:
    try:
        return getattr(subject, name, None)
    except Exception:  # noqa: BLE001 - a property of somebody else's class may raise anything
        return None
