"""Define a graph by decorating functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from agentruns.domain.graph.definition import CompiledGraph, GraphExecutionLimits
from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.graph.nodes import ReadyNodes
from agentruns.domain.graph.reducers import GraphReducer, MergeReducer
from agentruns.domain.identity import CapabilityIdentity, CapabilityReference, PrincipalIdentity
from agentruns.domain.numbers import ExecutionCount, Superstep
from agentruns.domain.scalars import CapabilityName, NodeId, Version
from agentruns.errors import DefinitionError
from agentruns.runtime.function_nodes import executor_of
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.node_declarations import NodeDeclaration, NodeFunction, Successors, findings
from agentruns.runtime.node_retry import NodeRetry
from agentruns.runtime.schema_sources import GraphSchema, SchemaSource, read_schema, update_of

Function = TypeVar("Function", bound=NodeFunction)

MAXIMUM_FINDINGS = 100


class GraphBuilder:
    """Collect the nodes of one graph from decorated functions, and build it.

    Args:
        name: of the graph, and ``version``: together with the owner they name one definition for ever.
        input: schema of a run's input: a dict, a path, or a class with ``model_json_schema()``. So are the others.
        state: schema of the state.
        output: schema of what a terminal node finishes with.
        update: schema of what a node adds to the state; by default that of the state with every member optional.
        reducer: how updates become the next state; by default each member that an update names is replaced.
        maximum_supersteps: how many steps a run may take.
        maximum_parallelism: how many nodes may be ready at once, 1..1024.
        owner: who publishes the graph; may be left to :meth:`build`.
    """

    def __init__(
        self,
        name: str,
        version: str,
        *,
        input: SchemaSource,  # noqa: A002 - the role's name
        state: SchemaSource,
        output: SchemaSource,
        update: SchemaSource | None = None,
        reducer: GraphReducer | None = None,
        maximum_supersteps: int = 1_024,
        maximum_parallelism: int = 64,
        owner: PrincipalIdentity | None = None,
    ) -> None:
        self.capability = CapabilityReference(name=CapabilityName(name), version=Version(version))
        self.owner = owner
        self._reducer: GraphReducer = MergeReducer() if reducer is None else reducer
        self._limits = GraphExecutionLimits(
            maximum_supersteps=Superstep(maximum_supersteps), maximum_parallelism=ExecutionCount(maximum_parallelism)
        )
        self._documents = {
            "input": read_schema(input, role="input"),
            "state": (read_state := read_schema(state, role="state")),
            "update": update_of(read_state) if update is None else read_schema(update, role="update"),
            "output": read_schema(output, role="output"),
        }
        self._declarations: list[NodeDeclaration] = []

    def node(
        self,
        *,
        name: str | None = None,
        entry: bool = False,
        then: Successors | None = None,
        routes: Mapping[str, Successors] | None = None,
        wait_to: Successors | None = None,
        terminal: bool = False,
        scheduling: GraphNodeScheduling = GraphNodeScheduling.EXCLUSIVE,
        retry: NodeRetry | None = None,
    ) -> Callable[[Function], Function]:
        """Make the decorated function a node of the graph; the function itself is given back unchanged.

        Args:
            name: the node's id; by default the function's name.
            entry: whether the graph begins here.
            then: the node, or nodes, that follow when it continues.
            routes: its choices: a short name each, and where it leads.
            wait_to: what is ready once its waits are settled.
            terminal: whether it may finish the graph.
            scheduling: whether it may overlap its siblings.
            retry: which exceptions are worth another attempt, and when.
        """

        def declare(function: Function) -> Function:
            self._declarations.append(
                NodeDeclaration(
                    node_id=NodeId(name or _name_of(function)),
                    function=function,
                    entry=entry,
                    then=_names(then),
                    routes={short: _names(successors) or () for short, successors in (routes or {}).items()},
                    wait_to=_names(wait_to),
                    terminal=terminal,
                    scheduling=scheduling,
                    retry=retry,
                )
            )
            return function

        return declare

    def build(self, *, owner: PrincipalIdentity | None = None) -> GraphBundle:
        """Compile the graph and bind its code to it. No source is read.

        Args:
            owner: who publishes the graph, where the builder was not told.

        Raises:
            DefinitionError: kind ``graph``; ``node_id`` is the first node that is wrong, and ``findings`` names all.
        """
        identity = CapabilityIdentity(owner=self._owner(owner), capability=self.capability)
        self._refuse_findings()
        schemas = {role: GraphSchema.of(tree, role=role, graph=identity) for role, tree in self._documents.items()}
        graph = self._compiled(identity, schemas)
        executors = sorted(
            (executor_of(declaration, graph=graph.reference) for declaration in self._declarations),
            key=lambda executor: executor.node_id,
        )
        return GraphBundle(
            graph=graph, reducer=self._reducer, executors=tuple(executors), schemas=tuple(schemas.values())
        )

    def _owner(self, owner: PrincipalIdentity | None) -> PrincipalIdentity:
        chosen = owner if self.owner is None else self.owner
        if chosen is None:
            raise DefinitionError(kind="graph", reason="owner_missing")
        return chosen

    def _refuse_findings(self) -> None:
        if found := findings(self._declarations):
            raise DefinitionError(
                kind="graph",
                reason=found[0].reason,
                node_id=found[0].node_id,
                findings=tuple(str(finding) for finding in found[:MAXIMUM_FINDINGS]),
            )

    def _compiled(self, identity: CapabilityIdentity, schemas: Mapping[str, GraphSchema]) -> CompiledGraph:
        return CompiledGraph.compile(
            identity=identity,
            input_schema=schemas["input"].reference,
            state_schema=schemas["state"].reference,
            update_schema=schemas["update"].reference,
            output_schema=schemas["output"].reference,
            reducer=self._reducer.reference,
            entry_nodes=ReadyNodes.of(*(each.node_id for each in self._declarations if each.entry)),
            nodes=[declaration.node() for declaration in self._declarations],
            limits=self._limits,
        )


def _names(successors: Successors | None) -> tuple[str, ...] | None:
    """Take one node's name or several."""
    if successors is None or isinstance(successors, str):
        return None if successors is None else (successors,)
    return tuple(successors)


def _name_of(function: NodeFunction) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
