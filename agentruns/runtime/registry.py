"""The graphs that this process can execute: collected once, checked whole, then frozen."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from types import MappingProxyType

from attrs import field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.graph.executable import ExecutableGraph, GraphNodeExecutor
from agentruns.domain.graph.reducers import GraphReducer, GraphReducerReference
from agentruns.domain.identity import CapabilityIdentity
from agentruns.domain.scalars import NodeId
from agentruns.domain.schema import JsonSchemaRegistry
from agentruns.errors import DefinitionError, ExecutableGraphUnavailableError
from agentruns.runtime.decoded_admissions import DecodedAdmissions
from agentruns.runtime.registry_checks import MAXIMUM_FINDINGS, Collected, findings, shape_of_node, shape_of_reducer

MAXIMUM_GRAPHS = 1_024
MAXIMUM_REDUCERS = 1_024
MAXIMUM_NODES = 65_536


@frozen(kw_only=True, eq=False)
class ExecutableGraphRegistry:
    """Find a graph's code by the digest that a run is pinned to. Nothing is discovered at run time.

    Made by :class:`ExecutableGraphRegistryBuilder`. Two registries are equal only when they are the same one.

    Attributes:
        schemas: the documents that all of the graphs are validated by.
        graph_digests: what this process can execute, ascending; claims are restricted to it.
        admissions: what was decoded already, by whichever service stands on this registry.
    """

    schemas: JsonSchemaRegistry
    graph_digests: tuple[Digest, ...] = field(init=False)
    admissions: DecodedAdmissions = field(factory=DecodedAdmissions, init=False, repr=False)
    _graphs: Mapping[Digest, ExecutableGraph] = field(repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "graph_digests", tuple(sorted(self._graphs)))

    def resolve(self, graph_digest: Digest) -> ExecutableGraph:
        """Give the graph with its code.

        Raises:
            ExecutableGraphUnavailableError: ``not_installed``; deploy a process that has it. Never a quarantine.
        """
        graph = self._graphs.get(graph_digest)
        if graph is None:
            raise ExecutableGraphUnavailableError(reason="not_installed", graph=graph_digest)
        return graph


class ExecutableGraphRegistryBuilder:
    """Collect graphs, reducers and node executors in any order; ``build`` checks that they fit together.

    Args:
        schemas: the frozen registry with every schema that the graphs name.
    """

    def __init__(self, schemas: JsonSchemaRegistry) -> None:
        self._collected = Collected(schemas=schemas)
        self._digests: dict[CapabilityIdentity, Digest] = {}
        self._reducer_digests: dict[CapabilityIdentity, Digest] = {}

    def register_graph(self, graph: CompiledGraph, accounting: object | None = None) -> None:
        """Add a graph; ``accounting`` prices its calls, and without one they are unpriced.

        Raises:
            DefinitionError: kind ``registry``: ``too_many_graphs``, ``duplicate_graph``, ``graph_mismatch``.
        """
        graphs = self._collected.graphs
        _refuse_full("too_many_graphs", graphs, maximum=MAXIMUM_GRAPHS)
        if graph.definition_digest in graphs:
            raise DefinitionError(kind="registry", reason="duplicate_graph", reference=graph.reference)
        if graph.identity in self._digests:
            raise DefinitionError(kind="registry", reason="graph_mismatch", reference=graph.reference)
        graphs[graph.definition_digest] = graph
        self._digests[graph.identity] = graph.definition_digest
        self._collected.accounting[graph.definition_digest] = accounting

    def register_reducer(self, reducer: GraphReducer) -> None:
        """Add a reducer that graphs name by its reference.

        Raises:
            DefinitionError: kind ``registry``: ``too_many_reducers``, ``wrong_shape``, ``duplicate_reducer``,
                ``reducer_mismatch``.
        """
        reducers = self._collected.reducers
        _refuse_full("too_many_reducers", reducers, maximum=MAXIMUM_REDUCERS)
        reference = shape_of_reducer(reducer)
        if reference in reducers:
            raise DefinitionError(kind="registry", reason="duplicate_reducer", reference=reference)
        if reference.identity in self._reducer_digests:
            raise DefinitionError(kind="registry", reason="reducer_mismatch", reference=reference)
        reducers[reference] = reducer
        self._reducer_digests[reference.identity] = reference.definition_digest

    def register_node(self, executor: GraphNodeExecutor) -> None:
        """Add the code of one node of one graph.

        Raises:
            DefinitionError: kind ``registry``: ``too_many_nodes``, ``wrong_shape``, ``duplicate_node``,
                ``node_mismatch`` when the graph's identity is registered with another digest.
        """
        executors = self._collected.executors
        _refuse_full("too_many_nodes", executors, maximum=MAXIMUM_NODES)
        graph, node_id = shape_of_node(executor)
        key = (graph.definition_digest, node_id)
        if key in executors:
            raise DefinitionError(kind="registry", reason="duplicate_node", node_id=node_id, reference=graph)
        if self._digests.get(graph.identity, graph.definition_digest) != graph.definition_digest:
            raise DefinitionError(kind="registry", reason="node_mismatch", node_id=node_id, reference=graph)
        executors[key] = executor

    def has_reducer(self, reference: GraphReducerReference) -> bool:
        """Whether exactly this reducer is registered, for bundles that share one."""
        return reference in self._collected.reducers

    def build(self) -> ExecutableGraphRegistry:
        """Check that everything fits together, and freeze it.

        Raises:
            DefinitionError: kind ``registry``; ``findings`` lists everything that is missing, mismatched or used by
                no graph, at most a hundred lines, and ``reason`` is that of the first.
        """
        if found := findings(self._collected):
            raise DefinitionError(
                kind="registry", reason=found[0].reason, findings=tuple(str(each) for each in found[:MAXIMUM_FINDINGS])
            )
        graphs = {digest: self._executable(graph) for digest, graph in self._collected.graphs.items()}
        return ExecutableGraphRegistry(schemas=self._collected.schemas, graphs=MappingProxyType(graphs))

    def _executable(self, graph: CompiledGraph) -> ExecutableGraph:
        digest = graph.definition_digest
        executors: dict[NodeId, GraphNodeExecutor] = {
            node.node_id: self._collected.executors[digest, node.node_id] for node in graph.nodes
        }
        return ExecutableGraph(
            definition=graph,
            reducer=self._collected.reducers[graph.reducer],
            executors=MappingProxyType(executors),
            schemas=self._collected.schemas,
            accounting=self._collected.accounting[digest],
        )


def _refuse_full(reason: str, registered: Sized, *, maximum: int) -> None:
    if len(registered) >= maximum:
        raise DefinitionError(kind="registry", reason=reason, limit=maximum, actual=len(registered) + 1)
