"""A small deployment: one graph that counts the words of a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen

from agentruns import Deployment, Finish, GraphBuilder, GraphNodeContext

TEXT: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
OUTPUT: dict[str, Any] = {"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]}


@frozen
class Shop:
    """A deployment and its graph."""

    deployment: Deployment
    triage: GraphBuilder


def triage_graph(version: str, *, maximum_supersteps: int) -> GraphBuilder:
    builder = GraphBuilder(
        "triage", version, input=TEXT, state=TEXT, output=OUTPUT, maximum_supersteps=maximum_supersteps
    )

    @builder.node(entry=True, then="sort")
    async def count(context: GraphNodeContext) -> dict[str, int]:
        return {"words": len(context.state["text"].split())}

    @builder.node(terminal=True)
    def sort(context: GraphNodeContext) -> Finish:
        return Finish({"words": context.state["words"]})

    return builder


def make_shop(version: str = "1.0.0", *, maximum_supersteps: int = 8) -> Shop:
    """Deploy the graph; the same arguments deploy the same one."""
    deployment = Deployment(issuer="https://shop.example/", subject="back-office")
    return Shop(deployment, deployment.add(triage_graph(version, maximum_supersteps=maximum_supersteps)))


@pytest.fixture
def shop_of() -> Callable[..., Shop]:
    return make_shop


@pytest.fixture
def shop() -> Shop:
    return make_shop()
