"""A graph that was checked as a whole: what every admission pins and every event names by its digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import ClassVar, Final, Self

from attrs import field, fields, frozen

from agentruns.domain.canonical import JsonTree
from agentruns.domain.digests import Digest
from agentruns.domain.graph.compile import check_structure, refusal
from agentruns.domain.graph.mermaid import flowchart
from agentruns.domain.graph.nodes import GraphNode, GraphRoute, ReadyNodes
from agentruns.domain.graph.reducers import GraphReducerReference
from agentruns.domain.identity import CapabilityIdentity, GraphReference, SchemaReference
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_bound, check_members
from agentruns.domain.numbers import ExecutionCount, Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.wire import decode, from_wire
from agentruns.errors import InvalidValueError

__all__ = [
    "CompiledGraph",
    "GraphExecutionLimits",
    "GraphNode",
    "GraphReducerReference",
    "GraphRoute",
    "ReadyNodes",
]

MAXIMUM_PARALLELISM: Final = 1024
#: Of a definition without its own digest.
MAXIMUM_DEFINITION_BYTES: Final = 2 * 1024 * 1024


@frozen(kw_only=True)
class GraphExecutionLimits:
    """Bound every run of a graph.

    Attributes:
        maximum_supersteps: a run that reaches it is blocked before any further node starts; at least 1.
        maximum_parallelism: of every ready set, 1..1024.
    """

    maximum_supersteps: Superstep
    maximum_parallelism: ExecutionCount

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "maximum_supersteps", 1, Superstep.highest)
        check_bound(self, "maximum_parallelism", 1, MAXIMUM_PARALLELISM)

    @classmethod
    def of(cls, *, maximum_supersteps: int, maximum_parallelism: int) -> Self:
        """Make limits from plain integers.

        Raises:
            InvalidValueError: ``out_of_range``.
        """
        return cls(
            maximum_supersteps=Superstep(maximum_supersteps), maximum_parallelism=ExecutionCount(maximum_parallelism)
        )


@frozen(kw_only=True)
class GraphDefinition(KeptBytes):
    """Hold everything that a graph is; its digest is the graph's. Made and checked by :class:`CompiledGraph`.

    Retries, timeouts and source code are no part of it.

    Attributes:
        identity: owner, name and version name one definition for ever.
        input_schema: of a request's input.
        state_schema: of every checkpoint's state.
        update_schema: of every node's update.
        output_schema: of the terminal output.
        reducer: the one that joins updates into the next state.
        entry_nodes: ready at superstep 0.
        nodes: in the order of their ids, 1..1024.
        limits: of every run.
    """

    #: The constructor bounds it, with an error of its own.
    max_wire_bytes: ClassVar = 64 * MAXIMUM_DEFINITION_BYTES

    identity: CapabilityIdentity
    input_schema: SchemaReference
    state_schema: SchemaReference
    update_schema: SchemaReference
    output_schema: SchemaReference
    reducer: GraphReducerReference
    entry_nodes: ReadyNodes
    nodes: tuple[GraphNode, ...]
    limits: GraphExecutionLimits

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if any(left.node_id > right.node_id for left, right in pairwise(self.nodes)):
            raise InvalidValueError(type_name="CompiledGraph", reason="unsorted", path=("nodes",))
        parallelism = int(self.limits.maximum_parallelism)
        check_structure(self.nodes, entry_nodes=self.entry_nodes, maximum_parallelism=parallelism)
        size = len(self.canonical)
        if size > MAXIMUM_DEFINITION_BYTES:
            raise refusal("definition_too_large", limit=MAXIMUM_DEFINITION_BYTES, actual=size)


@frozen(kw_only=True)
class CompiledGraph(GraphDefinition):
    """Hold a checked graph under its digest. Made by :meth:`compile`, or :meth:`restore` from what was stored.

    Attributes:
        definition_digest: plain digest of all other members.
        reference: what an admission pins.
    """

    max_wire_bytes: ClassVar = MAXIMUM_DEFINITION_BYTES + 128

    definition_digest: Digest
    reference: GraphReference = field(init=False, eq=False, repr=False)
    _by_id: Mapping[NodeId, GraphNode] = field(init=False, eq=False, repr=False)

    @reference.default
    def _own_reference(self) -> GraphReference:
        return GraphReference(
            identity=self.identity, definition_digest=self.definition_digest, state_schema=self.state_schema
        )

    @_by_id.default
    def _nodes_by_id(self) -> Mapping[NodeId, GraphNode]:
        return {node.node_id: node for node in self.nodes}

    def __attrs_post_init__(self) -> None:
        definition = GraphDefinition(**{each.name: getattr(self, each.name) for each in fields(GraphDefinition)})
        if definition.digest != self.definition_digest:
            raise refusal("digest_mismatch")

    @classmethod
    def compile(
        cls,
        *,
        identity: CapabilityIdentity,
        input_schema: SchemaReference,
        state_schema: SchemaReference,
        update_schema: SchemaReference,
        output_schema: SchemaReference,
        reducer: GraphReducerReference,
        entry_nodes: ReadyNodes,
        nodes: Iterable[GraphNode],
        limits: GraphExecutionLimits,
    ) -> Self:
        """Check a graph; its nodes may come in any order. Nothing looks at the nodes' code.

        Raises:
            DefinitionError: kind ``graph``, with the first reason that applies, its node and its route.
        """
        definition = GraphDefinition(
            identity=identity,
            input_schema=input_schema,
            state_schema=state_schema,
            update_schema=update_schema,
            output_schema=output_schema,
            reducer=reducer,
            entry_nodes=entry_nodes,
            nodes=tuple(sorted(nodes, key=lambda node: node.node_id)),
            limits=limits,
        )
        members = {each.name: getattr(definition, each.name) for each in fields(GraphDefinition)}
        return cls(**members, definition_digest=definition.digest)

    @classmethod
    def restore(cls, document: bytes | JsonTree) -> Self:
        """Read a stored graph: its canonical bytes, or their tree. Every check of :meth:`compile` is made again.

        Raises:
            DefinitionError: as :meth:`compile`; ``digest_mismatch`` when it is not the definition of its digest.
            InvalidValueError: the document is no wire form of a graph.
        """
        return decode(document, cls) if isinstance(document, bytes) else from_wire(document, cls)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._by_id

    def node(self, node_id: NodeId) -> GraphNode:
        """Get a node.

        Raises:
            KeyError: the graph has no such node.
        """
        return self._by_id[node_id]

    def to_mermaid(self, *, direction: str = "TD", marks: Mapping[NodeId, str] | None = None) -> str:
        """Draw the graph as Mermaid text; ``marks`` colours nodes as done, running, failed, waiting or next."""
        return flowchart(self, direction=direction, marks=marks or {})
