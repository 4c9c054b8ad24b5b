"""What an error of a tool says about the outside, and whether the call may start again."""

from __future__ import annotations

from enum import Enum, unique
from typing import Final

from agentruns.domain.tool import ToolRisk


@unique
class ToolEffect(Enum):
    """Say what a failed attempt did outside. Never inferred from a status code, a time-out or a cancellation."""

    NOT_APPLICABLE = "not_applicable"
    NOT_STARTED = "not_started"
    NOT_APPLIED = "not_applied"
    APPLIED = "applied"
    UNKNOWN = "unknown"

    def is_legal(self, risk: ToolRisk) -> bool:
        """Tell whether an error of a tool of that risk may have this effect."""
        return (self is ToolEffect.NOT_APPLICABLE) is not risk.is_write

    def permits_another_start(self, risk: ToolRisk) -> bool:
        """Tell whether a failed call of that risk may start again after this effect."""
        return self in _REPEATABLE[risk]


_REPEATABLE: Final[dict[ToolRisk, frozenset[ToolEffect]]] = {
    ToolRisk.READ_ONLY: frozenset({ToolEffect.NOT_APPLICABLE}),
    ToolRisk.IDEMPOTENT_WRITE: frozenset({ToolEffect.NOT_STARTED, ToolEffect.NOT_APPLIED, ToolEffect.APPLIED}),
    ToolRisk.NON_IDEMPOTENT_WRITE: frozenset({ToolEffect.NOT_STARTED, ToolEffect.NOT_APPLIED}),
}
