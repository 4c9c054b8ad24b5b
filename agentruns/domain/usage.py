"""What a run, or a piece of its work, has used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from attrs import evolve, frozen

from agentruns.domain.budget_dimensions import (
    COUNTER_DIMENSIONS,
    SUBSETS,
    BudgetDimension,
    BudgetKind,
    CounterValue,
)
from agentruns.domain.copies import copy_with
from agentruns.domain.costs import by_currency, check_costs, costs_of, sum_costs
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.money import Money
from agentruns.domain.numbers import ByteCount, Counter, ExecutionCount, TokenCount
from agentruns.errors import InvalidValueError

#: Counters that are held against one another.
_RELATED: Final = frozenset(name for pair in SUBSETS for name in pair)

_CounterT = TypeVar("_CounterT", bound=Counter)


@frozen(kw_only=True)
class BudgetUsage(KeptBytes):
    """State exactly what was used. Unknown usage is not zero: whoever cannot state it makes no such record.

    The counters are rows 2 to 20 of :data:`~agentruns.domain.budget_dimensions.BUDGET_DIMENSIONS`.

    Attributes:
        known_costs: what was charged, per currency.
        unpriced_cost_events: charges whose price nobody knows. They are never free.
    """

    graph_depth: ExecutionCount
    graph_steps: ExecutionCount
    model_attempts: ExecutionCount
    model_turns: ExecutionCount
    tool_calls: ExecutionCount
    write_calls: ExecutionCount
    remote_agent_delegations: ExecutionCount
    retries: ExecutionCount
    concurrent_branches: ExecutionCount
    fan_out: ExecutionCount
    input_tokens: TokenCount
    cached_input_tokens: TokenCount
    reasoning_tokens: TokenCount
    output_tokens: TokenCount
    input_bytes: ByteCount
    output_bytes: ByteCount
    event_bytes: ByteCount
    checkpoint_bytes: ByteCount
    artifact_bytes: ByteCount
    known_costs: tuple[Money, ...]
    unpriced_cost_events: ExecutionCount

    def __attrs_post_init__(self) -> None:
        check_members(self)
        for subset, inclusive in SUBSETS:
            if int(getattr(self, subset)) > int(getattr(self, inclusive)):
                raise InvalidValueError(
                    type_name="BudgetUsage", reason="subset_exceeds_inclusive", dimensions=(subset, inclusive)
                )
        check_costs("BudgetUsage", self.known_costs)

    @classmethod
    def zero(cls) -> BudgetUsage:
        """Nothing was used."""
        return _ZERO

    @classmethod
    def of(
        cls,
        *,
        known_costs: Mapping[str, int] | Iterable[Money] = (),
        unpriced_cost_events: int = 0,
        **counters: int,
    ) -> BudgetUsage:
        """Make usage from plain integers; a counter that is not named is zero."""
        members: dict[str, Any] = dict(counters)
        members |= {each.name: each.counter(counters.get(each.name, 0)) for each in COUNTER_DIMENSIONS}
        return cls(
            known_costs=costs_of(known_costs), unpriced_cost_events=ExecutionCount(unpriced_cost_events), **members
        )

    def counter(self, dimension: BudgetDimension) -> CounterValue:
        """Read the counter of a dimension."""
        value: CounterValue = getattr(self, dimension.name)
        return value

    def accumulate(self, other: BudgetUsage) -> BudgetUsage:
        """Add another piece of usage: sums are checked, of high-water counters the greater stays.

        Not idempotent: each piece is added exactly once.

        Raises:
            InvalidValueError: ``overflow``, or ``too_many_currencies`` for a seventeenth.
        """
        members: dict[str, Any] = {
            each.name: _together(each, getattr(self, each.name), getattr(other, each.name))
            for each in COUNTER_DIMENSIONS
        }
        return BudgetUsage(
            known_costs=sum_costs(self.known_costs, other.known_costs),
            unpriced_cost_events=self.unpriced_cost_events.plus(other.unpriced_cost_events),
            **members,
        )

    def with_counters(self, counters: Mapping[str, CounterValue]) -> BudgetUsage:
        """Replace counters by others of the same classes; what was checked of the rest is not checked again.

        Raises:
            InvalidValueError: ``subset_exceeds_inclusive``.
        """
        if _RELATED.isdisjoint(counters):
            return copy_with(self, counters)
        members: dict[str, Any] = dict(counters)
        return evolve(self, **members)

    def continues(self, earlier: BudgetUsage) -> bool:
        """Tell whether this may be what ``earlier`` became: nothing fell, shrank or disappeared."""
        if self.unpriced_cost_events < earlier.unpriced_cost_events:
            return False
        if any(int(self.counter(each)) < int(earlier.counter(each)) for each in COUNTER_DIMENSIONS):
            return False
        costs = by_currency(self.known_costs)
        return all(
            each.currency in costs and costs[each.currency].micro_units >= each.micro_units
            for each in earlier.known_costs
        )

    def cumulative(self) -> BudgetUsage:
        """Leave out high-water counters: what a child's usage adds to its parent's."""
        zeros: dict[str, Any] = {
            each.name: each.counter(0) for each in COUNTER_DIMENSIONS if each.kind is BudgetKind.HIGH_WATER
        }
        return evolve(self, **zeros)


def _together(dimension: BudgetDimension, left: _CounterT, right: _CounterT) -> _CounterT:
    """Join two counters; most are zero, and then nothing is made."""
    if right.value == 0:
        return left
    if left.value == 0 or (dimension.kind is BudgetKind.HIGH_WATER and left.value < right.value):
        return right
    return left if dimension.kind is BudgetKind.HIGH_WATER else left.plus(right)


_ZERO = BudgetUsage.of()
