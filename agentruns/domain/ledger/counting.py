"""The run's own counters, and what its work has used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget_dimensions import COUNTER_DIMENSIONS, BudgetKind, CounterValue
from agentruns.domain.usage import BudgetUsage

_HIGH_WATER: Final = frozenset(each.name for each in COUNTER_DIMENSIONS if each.kind is BudgetKind.HIGH_WATER)
_NOTHING: Final = BudgetUsage.zero()
#: Sums to which the run itself adds what follows a completion: events, supersteps, retries, states and its output.
_ADDED_TO: Final = ("graph_steps", "retries", "output_bytes", "event_bytes", "checkpoint_bytes")
#: A quarter of a counter's range: more than a run can ever add by itself.
ROOM_OF_A_RUN: Final = 2**62


def counted(usage: BudgetUsage, counts: Mapping[str, int], *, spent: BudgetUsage | None = None) -> BudgetUsage:
    """Add a piece of usage and counts by their names: of high-water counters the greater stays.

    Raises:
        InvalidValueError: ``overflow`` or ``too_many_currencies``.
    """
    if spent is not None and spent is not _NOTHING and spent != _NOTHING:
        usage = usage.accumulate(spent)
    changes: dict[str, CounterValue] = {}
    for name, count in counts.items():
        before: CounterValue = getattr(usage, name)
        if name not in _HIGH_WATER:
            changes[name] = before.raised(count)
        elif count > before.value:
            changes[name] = type(before)(count)
    return usage.with_counters(changes) if changes else usage


def usage_with_completion(usage: BudgetUsage, spent: BudgetUsage) -> BudgetUsage:
    """Give the usage after a completion, provided that whatever may follow it can still be counted, success included.

    What a stored completion says is only added, by the fold; this is asked before one is written.

    Raises:
        InvalidValueError: ``overflow`` or ``too_many_currencies``; the completion may not be written.
    """
    if spent is _NOTHING:
        return usage
    together = counted(usage, {}, spent=spent)
    for name in _ADDED_TO:
        if getattr(spent, name).value:
            getattr(together, name).raised(ROOM_OF_A_RUN)
    return together


def usage_with_output(usage: BudgetUsage, output: BoundedJson) -> BudgetUsage:
    """Give the usage of a run that succeeds with this output: its terminal event counts nothing else.

    Raises:
        InvalidValueError: ``overflow``.
    """
    return counted(usage, {"output_bytes": output.size})
