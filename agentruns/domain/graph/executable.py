"""A graph with everything that this process needs to run it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import Enum, unique
from types import MappingProxyType
from typing import Any, Protocol

from attrs import field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.graph.reducers import GraphReducer
from agentruns.domain.identity import GraphReference
from agentruns.domain.scalars import NodeId
from agentruns.domain.schema import JsonSchemaRegistry


@unique
class GraphNodeScheduling(Enum):
    """Say what may run beside a node.

    ``exclusive``: nothing of its run. ``journal_isolated``: siblings of the same checkpoint that are isolated too. The
    latter is a trusted promise that the node appends no event, makes no call of a model or tool, and that its result
    does not depend on the timing of its siblings.
    """

    EXCLUSIVE = "exclusive"
    JOURNAL_ISOLATED = "journal_isolated"


class GraphNodeExecutor(Protocol):
    """Execute one node of one graph.

    A node is the unit of repetition: after a crash it runs again from its first line, so what it changes outside
    belongs under its context's effect key.
    """

    @property
    def graph(self) -> GraphReference:
        """The exact graph it belongs to."""
        ...

    @property
    def node_id(self) -> NodeId:
        """Its node."""
        ...

    @property
    def scheduling(self) -> GraphNodeScheduling:
        """What may run beside it."""
        ...

    # The class of the context belongs to the runtime, which this layer does not know.
    def execute(self, context: Any, /) -> Any:
        """Give what the node decides, or an awaitable of it; raise ``NodeFailedError`` to declare a failure."""
        ...


def _view(executors: Mapping[NodeId, GraphNodeExecutor]) -> Mapping[NodeId, GraphNodeExecutor]:
    return MappingProxyType(dict(executors))


@frozen(kw_only=True, eq=False)
class ExecutableGraph:
    """Hold what runs a graph; resolved from a registry and compared by identity.

    Attributes:
        definition: the graph.
        reducer: the one that the definition pins.
        executors: one for each node.
        schemas: where the graph's four schemas are installed.
        accounting: what prices the graph's calls; without it they are unpriced.
        threaded: the nodes that are plain functions, which are called in a thread.
    """

    definition: CompiledGraph
    reducer: GraphReducer = field(repr=False)
    executors: Mapping[NodeId, GraphNodeExecutor] = field(repr=False, converter=_view)
    schemas: JsonSchemaRegistry = field(repr=False)
    accounting: object | None = field(default=None, repr=False)
    threaded: frozenset[NodeId] = field(init=False, repr=False)

    @threaded.default
    def _plain_functions(self) -> frozenset[NodeId]:
        return frozenset(
            node_id for node_id, each in self.executors.items() if not inspect.iscoroutinefunction(each.execute)
        )

    @property
    def digest(self) -> Digest:
        """Digest of the definition, by which events name the graph."""
        return self.definition.definition_digest
