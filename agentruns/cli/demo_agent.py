"""The demo's agent: a graph that triages a document, read → outline and keywords side by side → compose."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from attrs import frozen

from agentruns.cli import demo_text
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.graph.returns import Finish
from agentruns.runtime.context import GraphNodeContext
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.graph_builder import GraphBuilder

#: What a worker is told when one of its nodes begins.
Entered = Callable[[GraphNodeContext], Awaitable[None]]

_PART: Final = 16_000
_LINES: Final[dict[str, Any]] = {"type": "array", "items": {"type": "string"}}
_COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_PARTS: Final[dict[str, Any]] = {"parts": {**_LINES, "minItems": 1}}
_FOUND: Final[dict[str, Any]] = {
    "title": {"type": "string"},
    "words": _COUNT,
    "lines": _COUNT,
    "minutes": _COUNT,
    "outline": _LINES,
    "keywords": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"word": {"type": "string"}, "count": _COUNT},
            "required": ["word", "count"],
            "additionalProperties": False,
        },
    },
}
_ADDED: Final[dict[str, Any]] = {
    "summary": _LINES,
    "priority": {"enum": ["pressing", "normal"]},
    "pressing_words": _LINES,
}


def _closed(properties: dict[str, Any], required: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(required), "additionalProperties": False}


@frozen(kw_only=True)
class DemoAgent:
    """Hold the deployment and its only graph."""

    deployment: Deployment
    graph: GraphBuilder


async def _nobody(_context: GraphNodeContext) -> None:
    return


def triage_agent(entered: Entered = _nobody) -> DemoAgent:
    """Define the agent.

    Args:
        entered: called by each node before it works; it belongs to the process and not to the definition.
    """
    deployment = Deployment(issuer="https://agentruns.invalid/", subject="demo")
    triage = deployment.add(
        GraphBuilder(
            "demo.document-triage",
            "1.0.0",
            input=_closed(_PARTS, _PARTS),
            state=_closed(_PARTS | _FOUND, _PARTS),
            output=_closed(_FOUND | _ADDED, _FOUND | _ADDED),
            maximum_supersteps=3,
            maximum_parallelism=2,
        )
    )

    @triage.node(entry=True, then=("outline", "keywords"))
    async def read(context: GraphNodeContext) -> dict[str, object]:
        await entered(context)
        text = _text_of(context)
        return {"title": demo_text.title_of(text), **demo_text.measure(text)}

    @triage.node(then="compose", scheduling=GraphNodeScheduling.JOURNAL_ISOLATED)
    async def outline(context: GraphNodeContext) -> dict[str, object]:
        await entered(context)
        return {"outline": demo_text.outline_of(_text_of(context))}

    @triage.node(then="compose", scheduling=GraphNodeScheduling.JOURNAL_ISOLATED)
    async def keywords(context: GraphNodeContext) -> dict[str, object]:
        await entered(context)
        counted = demo_text.keywords_of(_text_of(context))
        return {"keywords": [{"word": word, "count": number} for word, number in counted.items()]}

    @triage.node(terminal=True)
    async def compose(context: GraphNodeContext) -> Finish:
        await entered(context)
        return Finish(_composed(context.state, _text_of(context)))

    return DemoAgent(deployment=deployment, graph=triage)


def input_of(text: str) -> JsonTree:
    """Make the run's input, in parts that no bound of a single string cuts short."""
    return {"parts": [text[start : start + _PART] for start in range(0, len(text), _PART)]}


def _text_of(context: GraphNodeContext) -> str:
    return "".join(context.state["parts"])


def _composed(state: dict[str, Any], text: str) -> JsonTree:
    weights = {each["word"]: each["count"] for each in state["keywords"]}
    pressing = demo_text.pressing_words_of(text)
    return {
        **{name: state[name] for name in _FOUND},
        "summary": list(demo_text.summary_of(text, weights)),
        "priority": "pressing" if pressing else "normal",
        "pressing_words": list(pressing),
    }
