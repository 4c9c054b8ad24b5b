"""Merging, resolving, adding up and evaluating, each against a model over plain integers."""

from __future__ import annotations

from functools import reduce
from random import Random
from typing import Any, TypeAlias

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentruns.domain.budget import ResolvedBudget
from agentruns.domain.budget_dimensions import BUDGET_DIMENSIONS, COUNTER_DIMENSIONS
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.money import Money
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import BudgetExceededError, InvalidValueError

#: Members by name, in plain integers; costs by currency code.
Plain: TypeAlias = dict[str, Any]

UINT64_MAX = 2**64 - 1
COUNTERS = [each.name for each in COUNTER_DIMENSIONS]
HIGH_WATERS = {"graph_depth", "concurrent_branches", "fan_out"}
PARTS = {"write_calls": "tool_calls", "cached_input_tokens": "input_tokens", "reasoning_tokens": "output_tokens"}

values = st.integers(0, 5) | st.integers(0, UINT64_MAX)
costs = st.dictionaries(st.sampled_from(["CHF", "EUR", "GBP", "USD"]), values, max_size=4)
instants = st.integers(0, 5) | st.integers(0, Timestamp.STORED_MAX.micros)

plain_limits = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(COUNTERS, values) | {"deadline": instants, "costs": costs}
)
stating_limits = st.fixed_dictionaries(dict.fromkeys(COUNTERS, values) | {"deadline": instants, "costs": costs})


@st.composite
def plain_usage(draw: st.DrawFn, numbers: st.SearchStrategy[int] = values) -> Plain:
    counters = {name: draw(numbers) for name in COUNTERS if name not in PARTS}
    parts = {part: draw(st.integers(0, counters[whole])) for part, whole in PARTS.items()}
    amounts = draw(st.dictionaries(st.sampled_from(["CHF", "EUR", "GBP", "USD"]), numbers, max_size=4))
    return counters | parts | {"known_costs": amounts, "unpriced_cost_events": draw(numbers)}


def limits_of(plain: Plain) -> BudgetLimits:
    deadline = plain.get("deadline")
    members = plain | {"deadline": deadline if deadline is None else Timestamp(deadline)}
    return BudgetLimits.of(**members)


def usage_of(plain: Plain) -> BudgetUsage:
    return BudgetUsage.of(**plain)


def plain_of(record: BudgetLimits | ResolvedBudget) -> Plain:
    """Write a record in plain values, what is absent left out."""
    stated = {each.name: getattr(record, each.name) for each in BUDGET_DIMENSIONS}
    plain: Plain = {name: int(value) for name, value in stated.items() if name in COUNTERS and value is not None}
    if record.deadline is not None:
        plain["deadline"] = record.deadline.micros
    if record.costs is not None:
        plain["costs"] = plain_costs(record.costs)
    return plain


def plain_costs(amounts: tuple[Money, ...]) -> dict[str, int]:
    return {str(each.currency): int(each.micro_units) for each in amounts}


def model_merge(one: Plain, two: Plain) -> Plain:
    merged = one | two
    for name in one.keys() & two.keys():
        if name == "costs":
            ours, theirs = one["costs"], two["costs"]
            merged["costs"] = {code: min(ours[code], theirs[code]) for code in ours.keys() & theirs.keys()}
        else:
            merged[name] = min(one[name], two[name])
    return merged


@given(plain_limits, plain_limits)
def test_merging_two_layers_is_what_the_model_says(one: Plain, two: Plain) -> None:
    assert plain_of(limits_of(one).merge(limits_of(two))) == model_merge(one, two)


@given(plain_limits.map(limits_of), plain_limits.map(limits_of), plain_limits.map(limits_of))
def test_merging_is_associative_commutative_and_idempotent(
    one: BudgetLimits, two: BudgetLimits, three: BudgetLimits
) -> None:
    assert one.merge(two.merge(three)) == one.merge(two).merge(three)
    assert one.merge(two) == two.merge(one)
    assert one.merge(one) == one
    assert one.merge(BudgetLimits()) == one


@given(stating_limits, st.lists(plain_limits, max_size=5), st.randoms(use_true_random=False))
def test_resolving_is_what_the_model_says_in_any_order(base: Plain, more: list[Plain], random: Random) -> None:
    layers = [base, *more]
    expected = reduce(model_merge, layers)
    for part, whole in PARTS.items():
        expected[part] = min(expected[part], expected[whole])
    random.shuffle(layers)
    assert plain_of(ResolvedBudget.resolve([limits_of(layer) for layer in layers])) == expected


@given(stating_limits.map(limits_of), st.lists(plain_limits.map(limits_of), max_size=5))
def test_a_resolved_budget_is_at_most_every_layer_that_states_a_member(
    base: BudgetLimits, more: list[BudgetLimits]
) -> None:
    resolved = ResolvedBudget.resolve([base, *more])
    for layer in (base, *more):
        for name in set(layer.stated) - {"costs"}:
            assert getattr(resolved, name) <= getattr(layer, name)
        if layer.costs is not None:
            ceilings = plain_costs(layer.costs)
            assert all(amount <= ceilings[code] for code, amount in plain_costs(resolved.costs).items())


@given(st.lists(plain_limits, min_size=1, max_size=4))
def test_what_no_layer_states_is_listed_in_the_order_of_the_table(layers: list[Plain]) -> None:
    missing = [each.name for each in BUDGET_DIMENSIONS if not any(each.name in layer for layer in layers)]
    assume(missing)
    with pytest.raises(InvalidValueError) as caught:
        ResolvedBudget.resolve([limits_of(layer) for layer in layers])
    assert caught.value.dimensions == tuple(missing)


def model_add(one: Plain, two: Plain) -> Plain:
    total: Plain = {
        name: (max if name in HIGH_WATERS else lambda left, right: left + right)(one[name], two[name])
        for name in [*COUNTERS, "unpriced_cost_events"]
    }
    ours, theirs = one["known_costs"], two["known_costs"]
    total["known_costs"] = {code: ours.get(code, 0) + theirs.get(code, 0) for code in ours.keys() | theirs.keys()}
    return total


def plain_usage_of(usage: BudgetUsage) -> Plain:
    counters: Plain = {name: int(getattr(usage, name)) for name in [*COUNTERS, "unpriced_cost_events"]}
    return counters | {"known_costs": plain_costs(usage.known_costs)}


def is_in_range(total: Plain) -> bool:
    amounts = total["known_costs"]
    numbers = [value for name, value in total.items() if name != "known_costs"]
    return all(each <= UINT64_MAX for each in [*numbers, *amounts.values()])


@given(plain_usage(), plain_usage())
def test_adding_is_what_the_model_says_or_overflows(one: Plain, two: Plain) -> None:
    expected = model_add(one, two)
    if not is_in_range(expected):
        with pytest.raises(InvalidValueError, match="overflow"):
            usage_of(one).accumulate(usage_of(two))
        return
    total = usage_of(one).accumulate(usage_of(two))
    assert plain_usage_of(total) == expected
    assert all(int(getattr(total, part)) <= int(getattr(total, whole)) for part, whole in PARTS.items())


@given(plain_usage(st.integers(0, 2**32)).map(usage_of), plain_usage(st.integers(0, 2**32)).map(usage_of))
def test_usage_continues_from_whatever_it_was_added_to(one: BudgetUsage, two: BudgetUsage) -> None:
    total = one.accumulate(two)
    assert total.continues(one)
    assert total.continues(two)
    assert one.continues(total) is (total == one)


def model_remaining(limits: Plain, used: Plain, at: int) -> tuple[str, str | None] | Plain:
    """Give what is left, or the reason and dimension of the first refusal."""
    if at >= limits["deadline"]:
        return "deadline", "deadline"
    for name in COUNTERS:
        if used[name] > limits[name]:
            return "limit", name
    ceilings, charged = limits["costs"], used["known_costs"]
    if not charged.keys() <= ceilings.keys():
        return "unbudgeted_currency", "costs"
    if any(charged[code] > ceilings[code] for code in charged):
        return "cost", "costs"
    if used["unpriced_cost_events"] != 0:
        return "unpriced_cost", "costs"
    left: Plain = {name: limits[name] - used[name] for name in COUNTERS}
    return left | {
        "deadline": limits["deadline"],
        "costs": {code: amount - charged.get(code, 0) for code, amount in ceilings.items()},
    }


@given(
    stating_limits,
    plain_usage(st.integers(0, 6)),
    st.integers(0, 5),
    st.booleans(),
)
def test_evaluation_is_what_the_model_says(
    limits: Plain,
    used: Plain,
    at: int,
    priced: bool,  # noqa: FBT001  # a strategy's value
) -> None:
    used = used | {"unpriced_cost_events": 0} if priced else used
    budget = ResolvedBudget.resolve([limits_of(limits)])
    expected = model_remaining(plain_of(budget), used, at)
    if isinstance(expected, tuple):
        with pytest.raises(BudgetExceededError) as caught:
            budget.remaining(usage_of(used), Timestamp(at))
        assert (caught.value.reason, caught.value.dimension) == expected
        return
    left = budget.remaining(usage_of(used), Timestamp(at))
    counters: Plain = {name: int(getattr(left, name)) for name in COUNTERS}
    assert counters | {"deadline": left.deadline.micros, "costs": plain_costs(left.costs)} == expected


@given(stating_limits.map(limits_of), st.lists(plain_limits.map(limits_of), max_size=3))
def test_more_layers_narrow(base: BudgetLimits, more: list[BudgetLimits]) -> None:
    assert ResolvedBudget.resolve([base, *more]).narrows(ResolvedBudget.resolve([base]))


@given(stating_limits.map(limits_of), stating_limits.map(limits_of))
def test_narrowing_is_what_the_model_says(one: BudgetLimits, two: BudgetLimits) -> None:
    child, parent = ResolvedBudget.resolve([one]), ResolvedBudget.resolve([two])
    ours, theirs = plain_of(child), plain_of(parent)
    narrower = all(ours[name] <= theirs[name] for name in [*COUNTERS, "deadline"])
    cheaper = all(
        code in plain_costs(parent.costs) and amount <= plain_costs(parent.costs)[code]
        for code, amount in plain_costs(child.costs).items()
    )
    assert child.narrows(parent) is (narrower and cheaper)
