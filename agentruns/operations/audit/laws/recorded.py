"""Graphs as a database has them, for folding where no application is: what its code would say is taken as recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import define, field, frozen

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.reducers import GraphReducerReference, NodeUpdate
from agentruns.domain.identity import SchemaReference
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.ledger.bodies import Bodies
from agentruns.domain.schema import JsonSchemaRegistry
from agentruns.domain.schema.verdicts import Verdicts
from agentruns.errors import InvalidJsonError, ReducerRejectedError
from agentruns.runtime.replay_fold import RunFold
from agentruns.runtime.replay_rows import EventRows


@frozen(kw_only=True, eq=False)
class UnaskedSchemas(JsonSchemaRegistry):
    """Accept every value: the documents of an application are not here."""

    def require(self, reference: SchemaReference, *, part: str | None = None) -> None:
        """Miss nothing."""

    def validate(self, reference: SchemaReference, value: BoundedJson, part: str | None = None) -> None:
        """Refuse nothing."""


_UNASKED: Final = UnaskedSchemas(references=(), validators={}, verdicts=Verdicts(maximum=1))


@define
class RecordedReducer:
    """Give the state that the record has, whose digest the barrier then has to have.

    Attributes:
        reference: what the graph pins.
        state: of the checkpoint that stands beside the event that is folded; ``None`` where there is none.
    """

    reference: GraphReducerReference
    state: bytes | None = None

    def reduce(self, state: JsonTree, updates: Sequence[NodeUpdate]) -> JsonTree:  # noqa: ARG002 - they are not asked
        """Give it.

        Raises:
            ReducerRejectedError: there is none, or it is no JSON.
        """
        if self.state is not None:
            try:
                return BoundedJson.parse(self.state, JsonLimits.MAXIMUM).value
            except InvalidJsonError:
                pass
        raise ReducerRejectedError(code="not_recorded")


@define
class RecordedFold(RunFold):
    """Fold a run without its application: tell its reducer, before each event, which state stands beside it."""

    reducer: RecordedReducer = field(kw_only=True)

    def _step(self, rows: EventRows, bodies: Bodies, intent: AgentAdmissionIntent) -> None:
        beside = [row for row in rows.beside if row.source == "checkpoint"]
        self.reducer.state = beside[0].body if beside else None
        super()._step(rows, bodies, intent)


def recorded_graph(definition: CompiledGraph) -> tuple[ExecutableGraph, RecordedReducer]:
    """Stand in for an application's graph: its definition, and a reducer that repeats what was recorded."""
    reducer = RecordedReducer(definition.reducer)
    graph = ExecutableGraph(definition=definition, reducer=reducer, executors={}, schemas=_UNASKED)
    return graph, reducer
