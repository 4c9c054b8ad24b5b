"""Bounds of members that are JSON from users."""

from __future__ import annotations

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.json_plain import is_small
from agentruns.errors import InvalidJsonError


def check_json(owner: object, value: BoundedJson, limits: JsonLimits) -> None:
    """Refuse a value that was bounded by wider limits than its member's; most are too small to be counted out.

    Raises:
        InvalidJsonError: ``too_large``, ``nesting_too_deep`` or ``too_many_nodes``.
    """
    is_within = is_small(value.data, max_depth=limits.max_depth, max_nodes=limits.max_nodes)
    if is_within and value.size <= limits.max_bytes:
        return
    for reason, actual, limit in (
        ("too_large", value.size, limits.max_bytes),
        ("nesting_too_deep", value.depth, limits.max_depth),
        ("too_many_nodes", value.nodes, limits.max_nodes),
    ):
        if actual > limit:
            raise InvalidJsonError(type_name=type(owner).__name__, reason=reason, limit=limit, actual=actual)
