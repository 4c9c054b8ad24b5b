"""Usage: what was used, and how pieces of it come together."""

from __future__ import annotations

from typing import Any

import pytest

from agentruns.domain.budget_dimensions import COUNTER_DIMENSIONS, BudgetDimension, BudgetKind
from agentruns.domain.money import Money
from agentruns.domain.numbers import ExecutionCount
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import InvalidValueError

UINT64_MAX = 2**64 - 1


def with_one(dimension: BudgetDimension, value: int) -> BudgetUsage:
    """Make usage of one dimension, and of the one that includes it."""
    names = [dimension.name, *([dimension.subset_of] if dimension.subset_of else [])]
    counters: dict[str, Any] = dict.fromkeys(names, value)
    return BudgetUsage.of(**counters)


def reason(raises: pytest.ExceptionInfo[InvalidValueError]) -> str:
    return raises.value.reason


def test_zero_is_zero_everywhere() -> None:
    assert all(BudgetUsage.zero().counter(each) == each.counter(0) for each in COUNTER_DIMENSIONS)
    assert BudgetUsage.zero().known_costs == ()
    assert BudgetUsage.zero().unpriced_cost_events == ExecutionCount(0)
    assert BudgetUsage.zero() == BudgetUsage.of()


def test_an_unknown_counter_is_refused() -> None:
    with pytest.raises(TypeError):
        BudgetUsage.of(tool_call=1)


def test_a_value_of_another_unit_is_refused() -> None:
    members = {each.name: each.counter(0) for each in COUNTER_DIMENSIONS}
    with pytest.raises(InvalidValueError) as caught:
        BudgetUsage(**members | {"retries": 0}, known_costs=(), unpriced_cost_events=ExecutionCount(0))  # type: ignore[arg-type]  # a plain int
    assert (caught.value.type_name, caught.value.reason, caught.value.path) == (
        "BudgetUsage",
        "wrong_type",
        ("retries",),
    )


@pytest.mark.parametrize(
    ("subset", "inclusive"),
    [
        ("write_calls", "tool_calls"),
        ("cached_input_tokens", "input_tokens"),
        ("reasoning_tokens", "output_tokens"),
    ],
)
def test_a_subset_is_at_most_what_includes_it(subset: str, inclusive: str) -> None:
    fitting: dict[str, Any] = {subset: 2, inclusive: 2}
    exceeding: dict[str, Any] = {subset: 3, inclusive: 2}
    assert BudgetUsage.of(**fitting) != BudgetUsage.zero()
    with pytest.raises(InvalidValueError) as caught:
        BudgetUsage.of(**exceeding)
    assert reason(caught) == "subset_exceeds_inclusive"
    assert caught.value.dimensions == (subset, inclusive)


def test_costs_have_one_form() -> None:
    euro = Money.of("EUR", 1)
    with pytest.raises(InvalidValueError) as caught:
        BudgetUsage.of(known_costs=[euro, euro])
    assert reason(caught) == "duplicate"


@pytest.mark.parametrize("dimension", COUNTER_DIMENSIONS, ids=lambda each: each.name)
def test_counters_add_and_high_waters_keep_the_greater(dimension: BudgetDimension) -> None:
    three, five = with_one(dimension, 3), with_one(dimension, 5)
    together = dimension.counter(5 if dimension.kind is BudgetKind.HIGH_WATER else 8)
    assert three.accumulate(five).counter(dimension) == together
    assert five.accumulate(three).counter(dimension) == together


def test_nothing_added_changes_nothing() -> None:
    usage = BudgetUsage.of(retries=2, known_costs={"EUR": 1}, unpriced_cost_events=1)
    assert usage.accumulate(BudgetUsage.zero()) == usage
    assert BudgetUsage.zero().accumulate(usage) == usage


def test_costs_add_per_currency() -> None:
    total = BudgetUsage.of(known_costs={"USD": 1, "EUR": 2}).accumulate(
        BudgetUsage.of(known_costs={"CHF": 4, "USD": 8})
    )
    assert total.known_costs == (Money.of("CHF", 4), Money.of("EUR", 2), Money.of("USD", 9))


def test_unpriced_events_add() -> None:
    one = BudgetUsage.of(unpriced_cost_events=1)
    assert one.accumulate(one).unpriced_cost_events == ExecutionCount(2)


@pytest.mark.parametrize(
    "usage",
    [
        BudgetUsage.of(retries=UINT64_MAX),
        BudgetUsage.of(known_costs={"EUR": UINT64_MAX}),
        BudgetUsage.of(unpriced_cost_events=UINT64_MAX),
    ],
    ids=["counter", "cost", "unpriced"],
)
def test_a_sum_out_of_range_is_refused(usage: BudgetUsage) -> None:
    with pytest.raises(InvalidValueError) as caught:
        usage.accumulate(usage)
    assert reason(caught) == "overflow"


def test_a_seventeenth_currency_is_refused() -> None:
    sixteen = BudgetUsage.of(known_costs={f"AA{chr(65 + index)}": 1 for index in range(16)})
    assert len(sixteen.accumulate(BudgetUsage.of(known_costs={"AAA": 1})).known_costs) == 16
    with pytest.raises(InvalidValueError) as caught:
        sixteen.accumulate(BudgetUsage.of(known_costs={"ZZZ": 1}))
    assert reason(caught) == "too_many_currencies"


@pytest.mark.parametrize("dimension", COUNTER_DIMENSIONS, ids=lambda each: each.name)
def test_no_counter_falls_in_later_usage(dimension: BudgetDimension) -> None:
    assert with_one(dimension, 5).continues(with_one(dimension, 5))
    assert with_one(dimension, 6).continues(with_one(dimension, 5))
    assert not with_one(dimension, 4).continues(with_one(dimension, 5))


def test_no_cost_shrinks_or_disappears_in_later_usage() -> None:
    earlier = BudgetUsage.of(known_costs={"EUR": 5}, unpriced_cost_events=1)
    assert BudgetUsage.of(known_costs={"EUR": 5, "USD": 1}, unpriced_cost_events=1).continues(earlier)
    assert not BudgetUsage.of(known_costs={"EUR": 4}, unpriced_cost_events=1).continues(earlier)
    assert not BudgetUsage.of(known_costs={"USD": 5}, unpriced_cost_events=1).continues(earlier)
    assert not BudgetUsage.of(known_costs={"EUR": 5}, unpriced_cost_events=0).continues(earlier)


def test_a_parent_is_charged_without_high_waters() -> None:
    counters = {each.name: 7 for each in COUNTER_DIMENSIONS}
    usage = BudgetUsage.of(**counters, known_costs={"EUR": 1}, unpriced_cost_events=2)
    charged = {
        name: value for name, value in counters.items() if name not in {"graph_depth", "concurrent_branches", "fan_out"}
    }
    assert usage.cumulative() == BudgetUsage.of(**charged, known_costs={"EUR": 1}, unpriced_cost_events=2)
