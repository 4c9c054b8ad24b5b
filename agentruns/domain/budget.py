"""The budget that a run has: resolved from layers of limits, and evaluated against usage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from attrs import frozen

from agentruns.domain.budget_dimensions import (
    COUNTER_DIMENSIONS,
    SUBSETS,
    BudgetDimension,
    CounterValue,
)
from agentruns.domain.budget_limits import BudgetLimits, check_storable, smallest_members
from agentruns.domain.costs import Costs, by_currency, check_costs
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.money import Money
from agentruns.domain.numbers import ByteCount, ExecutionCount, TokenCount
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import BudgetExceededError, InvalidValueError

#: Layers of an admission, those of the descriptor and the request included.
MAX_LAYERS = 16

#: Reads the counters of a budget, or of usage, in the order of the table.
_counters: Final[Callable[[Any], tuple[CounterValue, ...]]] = attrgetter(*[each.name for each in COUNTER_DIMENSIONS])


@frozen(kw_only=True)
class _EveryDimension(KeptBytes):
    """Declare the rows of the table, all of them stated."""

    deadline: Timestamp
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
    costs: tuple[Money, ...]

    def counter(self, dimension: BudgetDimension) -> CounterValue:
        """Read the counter of a dimension."""
        value: CounterValue = getattr(self, dimension.name)
        return value


@frozen(kw_only=True)
class BudgetRemaining(_EveryDimension):
    """Say what is left of a budget: per counter, per currency, and until when."""


@frozen(kw_only=True)
class ResolvedBudget(_EveryDimension):
    """Limit a run in every dimension of the table.

    Made by :meth:`resolve`; one that is decoded must already be resolved.
    """

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_storable("ResolvedBudget", self.deadline)
        check_costs("ResolvedBudget", self.costs)
        for subset, inclusive in SUBSETS:
            if int(getattr(self, subset)) > int(getattr(self, inclusive)):
                raise InvalidValueError(
                    type_name="ResolvedBudget", reason="invalid_subset", dimensions=(subset, inclusive)
                )

    @staticmethod
    def resolve(layers: Sequence[BudgetLimits]) -> ResolvedBudget:
        """Merge layers of limits, in whatever order, into the budget that satisfies them all.

        Raises:
            InvalidValueError: ``no_layers``, ``too_many_layers``, or ``missing_dimensions`` with the names of all
                that no layer states.
        """
        if not layers:
            raise InvalidValueError(type_name="ResolvedBudget", reason="no_layers")
        if len(layers) > MAX_LAYERS:
            raise InvalidValueError(type_name="ResolvedBudget", reason="too_many_layers")
        return _resolved(tuple(layers))

    def check_deadline(self, observed_at: Timestamp) -> None:
        """Refuse an instant at which the time is over.

        Raises:
            BudgetExceededError: ``deadline``.
        """
        if observed_at >= self.deadline:
            raise BudgetExceededError(
                reason="deadline", dimension="deadline", limit=str(self.deadline), actual=str(observed_at)
            )

    def check_usage(self, usage: BudgetUsage, observed_at: Timestamp) -> None:
        """Refuse ``usage`` that does not fit at the database's instant ``observed_at``.

        Raises:
            BudgetExceededError: ``deadline``, ``limit``, ``unbudgeted_currency``, ``cost`` or ``unpriced_cost``:
                the first that applies.
        """
        self.check_deadline(observed_at)
        for each, limit, used in zip(COUNTER_DIMENSIONS, _counters(self), _counters(usage), strict=True):
            if used.value > limit.value:
                raise BudgetExceededError(reason="limit", dimension=each.name, limit=str(limit), actual=str(used))
        _costs_left(self.costs, usage.known_costs)
        if usage.unpriced_cost_events.value > 0:
            raise BudgetExceededError(
                reason="unpriced_cost", dimension="costs", limit="0", actual=str(usage.unpriced_cost_events)
            )

    def remaining(self, usage: BudgetUsage, observed_at: Timestamp) -> BudgetRemaining:
        """Tell what is left after ``usage`` at the database's instant ``observed_at``.

        Raises:
            BudgetExceededError: as :meth:`check_usage`.
        """
        self.check_usage(usage, observed_at)
        counters: dict[str, Any] = {
            each.name: each.counter(limit.value - used.value)
            for each, limit, used in zip(COUNTER_DIMENSIONS, _counters(self), _counters(usage), strict=True)
        }
        return BudgetRemaining(deadline=self.deadline, costs=_costs_left(self.costs, usage.known_costs), **counters)

    def narrows(self, parent: ResolvedBudget) -> bool:
        """Tell whether a child may have this budget: nothing of it is above the parent's.

        A currency that the parent lacks is refused even with a ceiling of zero.
        """
        if self.deadline > parent.deadline:
            return False
        if any(int(self.counter(each)) > int(parent.counter(each)) for each in COUNTER_DIMENSIONS):
            return False
        ceilings = by_currency(parent.costs)
        return all(
            each.currency in ceilings and each.micro_units <= ceilings[each.currency].micro_units for each in self.costs
        )


@lru_cache(maxsize=256)
def _resolved(layers: tuple[BudgetLimits, ...]) -> ResolvedBudget:
    """Resolve layers that are often the same, so that their budget is made and encoded once."""
    members = smallest_members(layers)
    missing = tuple(name for name, value in members.items() if value is None)
    if missing:
        raise InvalidValueError(type_name="ResolvedBudget", reason="missing_dimensions", dimensions=missing)
    for subset, inclusive in SUBSETS:
        members[subset] = min(members[subset], members[inclusive])
    return ResolvedBudget(**members)


def _costs_left(ceilings: Costs, used: Costs) -> Costs:
    left = by_currency(ceilings)
    for each in used:
        if each.currency not in left:
            raise _too_much_money("unbudgeted_currency", each, None)
    for each in used:
        ceiling = left[each.currency]
        if each.micro_units > ceiling.micro_units:
            raise _too_much_money("cost", each, ceiling)
        left[each.currency] = ceiling.minus(each)
    return tuple(left.values())


def _too_much_money(reason: str, used: Money, ceiling: Money | None) -> BudgetExceededError:
    return BudgetExceededError(
        reason=reason,
        dimension="costs",
        limit=None if ceiling is None else str(ceiling.micro_units),
        actual=str(used.micro_units),
        currency=str(used.currency),
    )
