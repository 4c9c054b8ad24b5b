"""The agent: a graph of two nodes that examines an order, and the deployment that a worker runs.

agentruns worker --app order_reviews.agent:deployment``.
"""

from __future__ import annotations

from typing import Any

from agentruns import Deployment, Finish, GraphBuilder, GraphNodeContext

ISSUER = "https://orders.example/"

_LARGE_AMOUNT = 100_000
_MANY_PIECES = 50

_LINE: dict[str, Any] = {
    "type": "object",
    "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer", "minimum": 1}},
    "required": ["sku", "quantity"],
    "additionalProperties": False,
}
_ORDER: dict[str, Any] = {
    "reference": {"type": "string"},
    "amount_cents": {"type": "integer", "minimum": 0},
    "lines": {"type": "array", "items": _LINE, "minItems": 1},
    "note": {"type": "string", "maxLength": 2_000},
}
_FINDINGS: dict[str, Any] = {"type": "array", "items": {"enum": ["large_amount", "many_pieces", "has_note"]}}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


deployment = Deployment(issuer=ISSUER, subject="order-reviews")
review = deployment.add(
    GraphBuilder(
        "order-review",
        "1.0.0",
        input=_object(_ORDER, *_ORDER),
        state=_object(_ORDER | {"findings": _FINDINGS}, *_ORDER),
        output=_object({"decision": {"enum": ["ship", "refer"]}, "findings": _FINDINGS}, "decision", "findings"),
    )
)


@review.node(entry=True, then="decide")
def examine(context: GraphNodeContext) -> dict[str, list[str]]:
    """Look at the order. A plain function runs in a thread, so it may block."""
    order = context.state
    looks = {
        "large_amount": order["amount_cents"] >= _LARGE_AMOUNT,
        "many_pieces": sum(line["quantity"] for line in order["lines"]) >= _MANY_PIECES,
        "has_note": bool(order["note"]),
    }
    return {"findings": [name for name, is_so in looks.items() if is_so]}


@review.node(terminal=True)
async def decide(context: GraphNodeContext) -> Finish:
    """Ship what nothing was found about, and refer the rest to a person."""
    findings = context.state["findings"]
    return Finish({"decision": "refer" if findings else "ship", "findings": findings})
