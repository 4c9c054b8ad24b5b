"""Small graphs to test with, built from names, and what runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import frozen

from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.definition import CompiledGraph, GraphExecutionLimits, GraphNode, ReadyNodes
from agentruns.domain.graph.executable import ExecutableGraph, GraphNodeExecutor, GraphNodeScheduling
from agentruns.domain.graph.reducers import GraphReducer, MergeReducer
from agentruns.domain.identity import GraphReference
from agentruns.domain.scalars import NodeId
from agentruns.domain.schema import JsonSchemaRegistry, JsonSchemaRegistryBuilder
from agentruns.testing.samples import identity, schema_document, schema_reference

#: The four roles of a graph's schemas; without keywords their documents accept everything.
ROLES = ("input", "state", "update", "output")

Keywords = Mapping[str, Mapping[str, JsonTree]]


@frozen(kw_only=True)
class NodeFunction:
    """Execute a node by a plain function of its context."""

    graph: GraphReference
    node_id: NodeId
    function: Callable[[Any], object]
    scheduling: GraphNodeScheduling = GraphNodeScheduling.EXCLUSIVE

    def execute(self, context: Any, /) -> object:
        """Call the function."""
        return self.function(context)


def graph_of(
    nodes: Iterable[GraphNode],
    *,
    entry: Sequence[str] = ("a",),
    name: str = "sample-graph",
    version: str = "1.0.0",
    reducer: GraphReducer | None = None,
    maximum_supersteps: int = 64,
    maximum_parallelism: int = 16,
    keywords: Keywords | None = None,
    prefix: str = "",
) -> CompiledGraph:
    """Compile a graph of the sample owner.

    Args:
        nodes: in any order.
        entry: ids of the nodes that begin.
        name: of the graph.
        version: of the graph.
        reducer: pinned by the graph; by default a merge that replaces members.
        maximum_supersteps: of a run.
        maximum_parallelism: of a ready set.
        keywords: of the schema documents, by role.
        prefix: of their names; the samples of agents and requests name the same documents without one.
    """
    stated = keywords or {}
    return CompiledGraph.compile(
        identity=identity(name, version),
        input_schema=schema_reference(f"{prefix}input", **stated.get("input", {})),
        state_schema=schema_reference(f"{prefix}state", **stated.get("state", {})),
        update_schema=schema_reference(f"{prefix}update", **stated.get("update", {})),
        output_schema=schema_reference(f"{prefix}output", **stated.get("output", {})),
        reducer=(reducer or MergeReducer()).reference,
        entry_nodes=ReadyNodes.of(*entry),
        nodes=nodes,
        limits=GraphExecutionLimits.of(maximum_supersteps=maximum_supersteps, maximum_parallelism=maximum_parallelism),
    )


def add_schemas(builder: JsonSchemaRegistryBuilder, *, prefix: str = "", keywords: Keywords | None = None) -> None:
    """Install the documents that :func:`graph_of` pins for the same arguments."""
    for role in ROLES:
        builder.add(schema_document(f"{prefix}{role}", **(keywords or {}).get(role, {})), "1.0.0")


def schemas_of(*, prefix: str = "", keywords: Keywords | None = None) -> JsonSchemaRegistry:
    """Make a registry of nothing but one graph's documents."""
    builder = JsonSchemaRegistryBuilder()
    add_schemas(builder, prefix=prefix, keywords=keywords)
    return builder.build()


def executable_of(
    nodes: Iterable[GraphNode],
    functions: Mapping[str, Callable[[Any], object]] | None = None,
    *,
    entry: Sequence[str] = ("a",),
    name: str = "sample-graph",
    reducer: GraphReducer | None = None,
    maximum_supersteps: int = 64,
    maximum_parallelism: int = 16,
    keywords: Keywords | None = None,
    prefix: str = "",
) -> ExecutableGraph:
    """Make a graph with its reducer, its schemas and a function for each node; a node without one returns ``None``."""
    reduces = reducer or MergeReducer()
    definition = graph_of(
        nodes,
        entry=entry,
        name=name,
        reducer=reduces,
        maximum_supersteps=maximum_supersteps,
        maximum_parallelism=maximum_parallelism,
        keywords=keywords,
        prefix=prefix,
    )
    return executable(definition, reduces, functions=functions, schemas=schemas_of(prefix=prefix, keywords=keywords))


def executable(
    definition: CompiledGraph,
    reducer: GraphReducer,
    *,
    schemas: JsonSchemaRegistry,
    functions: Mapping[str, Callable[[Any], object]] | None = None,
) -> ExecutableGraph:
    """Put together what runs a graph."""
    stated = functions or {}
    executors: dict[NodeId, GraphNodeExecutor] = {
        node.node_id: NodeFunction(
            graph=definition.reference,
            node_id=node.node_id,
            function=stated.get(str(node.node_id), lambda _context: None),
        )
        for node in definition.nodes
    }
    return ExecutableGraph(definition=definition, reducer=reducer, executors=executors, schemas=schemas)


def chain(*ids: str) -> list[GraphNode]:
    """Declare nodes that follow each other; the last one is terminal."""
    inner = [GraphNode.of(before, continue_to=[after]) for before, after in pairwise(ids)]
    return [*inner, GraphNode.of(ids[-1], terminal=True)]
