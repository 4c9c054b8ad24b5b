"""A graph with everything that is needed to run it, ready to be registered."""

from __future__ import annotations

from attrs import field, frozen

from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.graph.executable import GraphNodeExecutor
from agentruns.domain.graph.reducers import GraphReducer
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.runtime.registry import ExecutableGraphRegistryBuilder
from agentruns.runtime.schema_sources import GraphSchema


@frozen(kw_only=True, eq=False)
class GraphBundle:
    """Carry a compiled graph, its reducer, its nodes' code and its schema documents.

    Attributes:
        graph: the definition.
        reducer: what the definition names.
        executors: one for each node, in the order of their ids.
        schemas: of input, state, update and output.
    """

    graph: CompiledGraph
    reducer: GraphReducer = field(repr=False)
    executors: tuple[GraphNodeExecutor, ...] = field(repr=False)
    schemas: tuple[GraphSchema, ...] = field(repr=False)

    def register_schemas(self, builder: JsonSchemaRegistryBuilder) -> None:
        """Register the documents that ``builder`` does not have yet; do this before its registry is built.

        Raises:
            DefinitionError: kind ``schema``; a document cannot be used, or its id stands for another one.
        """
        for schema in self.schemas:
            schema.register(builder)

    def register(self, builder: ExecutableGraphRegistryBuilder, *, accounting: object | None = None) -> None:
        """Register graph, nodes and reducer; the reducer is left out where another graph has brought the same one.

        Args:
            builder: of the registry that will run the graph; its schemas hold those of the bundle.
            accounting: what prices the graph's calls; without it they are unpriced.

        Raises:
            DefinitionError: kind ``registry``.
        """
        builder.register_graph(self.graph, accounting=accounting)
        if not builder.has_reducer(self.reducer.reference):
            builder.register_reducer(self.reducer)
        for executor in self.executors:
            builder.register_node(executor)
