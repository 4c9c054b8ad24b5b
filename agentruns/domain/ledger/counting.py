"""The run's own counters, and what its work has used."""

from __future__ import annotations

from typing import Any, Final

from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget_dimensions import COUNTER_DIMENSIONS, BudgetKind
from agentruns.domain.usage import BudgetUsage

_HIGH_WATER: Final = frozenset(each.name for each in COUNTER_DIMENSIONS if each.kind is BudgetKind.HIGH_WATER)
_NOTHING: Final = BudgetUsage.zero()


def counted(usage: BudgetUsage, *, spent: BudgetUsage | None = None, **counts: int) -> BudgetUsage:
    """Add a piece of usage and counts: of high-water counters the greater stays.

    Raises:
        InvalidValueError: ``overflow`` or ``too_many_currencies``.
    """
    if spent is not None and spent != _NOTHING:
        usage = usage.accumulate(spent)
    changes: dict[str, Any] = {}
    for name, count in counts.items():
        before = getattr(usage, name)
        if name not in _HIGH_WATER:
            changes[name] = before.plus(type(before)(count))
        elif count > before.value:
            changes[name] = type(before)(count)
    return evolve(usage, **changes) if changes else usage


def usage_with_output(usage: BudgetUsage, output: BoundedJson) -> BudgetUsage:
    """Give the usage of a run that succeeds with this output: its terminal event counts nothing else.

    Raises:
        InvalidValueError: ``overflow``.
    """
    return counted(usage, output_bytes=output.size)
