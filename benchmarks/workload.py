"""What is submitted: an order of about a kilobyte, for a graph of three nodes in a row."""

from __future__ import annotations

import asyncio
from typing import Final

from attrs import define, field, frozen

from agentruns import AgentRunIds, Finish, GraphBuilder, TenantId
from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.canonical import JsonTree
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.submission import DurableAgentAdmissionRequest, GraphState
from agentruns.runtime.context import GraphNodeContext
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.registry import ExecutableGraphRegistry, ExecutableGraphRegistryBuilder
from agentruns.runtime.standard_schemas import register_standard_schemas
from agentruns.testing import samples

_TEXT: Final[dict[str, JsonTree]] = {"type": "string", "maxLength": 200}
_LINE: Final[dict[str, JsonTree]] = {
    "type": "object",
    "properties": {"article": _TEXT, "count": {"type": "integer", "minimum": 1}},
    "required": ["article", "count"],
    "additionalProperties": False,
}
_LINES_OF: Final[dict[str, JsonTree]] = {"type": "array", "items": _LINE, "minItems": 1}
_INPUT: Final[dict[str, JsonTree]] = {
    "type": "object",
    "properties": {
        "order": _TEXT,
        "customer": _TEXT,
        "note": {"type": "string", "maxLength": 1_000},
        "lines": _LINES_OF,
    },
    "required": ["order", "customer", "note", "lines"],
    "additionalProperties": False,
}
_OPEN_ORDER: Final[dict[str, JsonTree]] = {
    "type": "object",
    "properties": {"order": _TEXT, "customer": _TEXT, "lines": _LINES_OF},
    "required": ["order", "customer", "lines"],
    "additionalProperties": False,
}
_STATE: Final[dict[str, JsonTree]] = {
    "type": "object",
    "properties": {"order": _OPEN_ORDER, "collected": _TEXT, "checked": _TEXT},
    "required": ["order"],
    "additionalProperties": False,
}
_OUTPUT: Final[dict[str, JsonTree]] = {
    "type": "object",
    "properties": {"articles": {"type": "integer"}},
    "required": ["articles"],
    "additionalProperties": False,
}
_LINES: Final = 4
_NOTE: Final = "Leave the parcel with the neighbours if nobody is at home. " * 13


async def collect(context: GraphNodeContext) -> dict[str, JsonTree]:
    """Write down what was ordered."""
    return {"collected": f"order {context.state['order']['order']}"}


async def check(context: GraphNodeContext) -> dict[str, JsonTree]:
    """Write down that it was checked."""
    return {"checked": f"{context.state['collected']} is complete"}


@define
class Answers:
    """Hold the last node, and tell when enough runs have come to it."""

    _left: int = 0
    _done: asyncio.Event = field(factory=asyncio.Event)

    def expect(self, count: int) -> None:
        """Begin to count."""
        self._left = count
        self._done.clear()

    async def all_given(self) -> None:
        """Return when as many runs as were expected have been answered."""
        await self._done.wait()

    async def answer(self, context: GraphNodeContext) -> Finish:
        """Count the articles."""
        self._left -= 1
        if not self._left:
            self._done.set()
        return Finish({"articles": sum(line["count"] for line in context.state["order"]["lines"])})


def order(number: int) -> dict[str, JsonTree]:
    """Give the input of one run; no two are equal, so each is validated anew."""
    lines: list[JsonTree] = [{"article": f"article {number}-{place}", "count": place + 1} for place in range(_LINES)]
    return {
        "order": f"order-{number:09d}",
        "customer": f"customer of order {number}",
        "note": f"{number}: {_NOTE}",
        "lines": lines,
    }


#: What every run must end with.
ARTICLES: Final = sum(range(1, _LINES + 1))


@frozen(kw_only=True)
class Workload:
    """The graph with everything that runs it, and the agent that is asked."""

    bundle: GraphBundle
    executables: ExecutableGraphRegistry
    agent: AgentDescriptor
    answers: Answers

    def request(self, tenant_id: TenantId, number: int) -> DurableAgentAdmissionRequest:
        """Build a submission with fresh ids; the initial state is what was ordered, without the note."""
        ordered, graph = order(number), self.bundle.graph
        state = {name: member for name, member in ordered.items() if name != "note"}
        return samples.admission_request(
            tenant_id=tenant_id,
            ids=AgentRunIds.generate(),
            descriptor=self.agent,
            request=samples.agent_request(input=ordered, input_schema=graph.input_schema),
            graph=graph.reference,
            initial_state=GraphState.of(graph.state_schema, {"order": state}),
        )


def workload() -> Workload:
    """Build the graph and register it with its schemas."""
    answers = Answers()
    builder = GraphBuilder(
        "benchmark.order", "1.0.0", input=_INPUT, state=_STATE, output=_OUTPUT, owner=samples.principal()
    )
    builder.node(entry=True, then="check")(collect)
    builder.node(then="answer")(check)
    builder.node(terminal=True)(answers.answer)
    bundle = builder.build()
    documents = JsonSchemaRegistryBuilder()
    register_standard_schemas(documents)
    documents.add(samples.schema_document("evidence"), "1.0.0")
    bundle.register_schemas(documents)
    registry = ExecutableGraphRegistryBuilder(documents.build())
    bundle.register(registry)
    graph = bundle.graph
    return Workload(
        bundle=bundle,
        executables=registry.build(),
        answers=answers,
        agent=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
    )
