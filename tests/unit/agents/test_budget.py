"""Resolution of layers, evaluation against usage, narrowing."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.budget import ResolvedBudget
from agentruns.domain.budget_dimensions import BUDGET_DIMENSIONS, COUNTER_DIMENSIONS, BudgetDimension
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.money import Money
from agentruns.domain.numbers import ExecutionCount, TokenCount
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import BudgetExceededError, InvalidValueError

NOON = Timestamp.parse("2026-01-02T12:00:00.000000Z")
JUST_BEFORE = Timestamp(NOON.micros - 1)


def budget(**members: object) -> ResolvedBudget:
    """Limit every counter to 10, money to 100 EUR cents, until noon."""
    counters = {each.name: each.counter(10) for each in COUNTER_DIMENSIONS}
    return ResolvedBudget(**{"deadline": NOON, "costs": (Money.of("EUR", 100),)} | counters | members)  # type: ignore[arg-type]  # from the table


def exceeded(usage: BudgetUsage, at: Timestamp = JUST_BEFORE, **members: object) -> BudgetExceededError:
    with pytest.raises(BudgetExceededError) as caught:
        budget(**members).remaining(usage, at)
    return caught.value


# --- resolution -----------------------------------------------------------------------------------------------------


def test_the_system_default_alone_resolves() -> None:
    resolved = ResolvedBudget.resolve([BudgetLimits.system_default()])
    assert {each.name: getattr(resolved, each.name) for each in BUDGET_DIMENSIONS} == {
        each.name: each.system_default for each in BUDGET_DIMENSIONS
    }


def test_no_layer_is_refused() -> None:
    with pytest.raises(InvalidValueError) as caught:
        ResolvedBudget.resolve([])
    assert (caught.value.type_name, caught.value.reason) == ("ResolvedBudget", "no_layers")


def test_sixteen_layers_resolve_and_seventeen_do_not() -> None:
    default = BudgetLimits.system_default()
    assert ResolvedBudget.resolve([default] * 16) == ResolvedBudget.resolve([default])
    with pytest.raises(InvalidValueError) as caught:
        ResolvedBudget.resolve([default] * 17)
    assert caught.value.reason == "too_many_layers"


def test_every_dimension_that_nobody_states_is_listed_in_the_order_of_the_table() -> None:
    default = BudgetLimits.system_default()
    with pytest.raises(InvalidValueError) as caught:
        ResolvedBudget.resolve([evolve(default, costs=None, deadline=None, retries=None), BudgetLimits()])
    assert caught.value.reason == "missing_dimensions"
    assert caught.value.dimensions == ("deadline", "retries", "costs")


def test_no_opinion_at_all_lists_the_whole_table() -> None:
    with pytest.raises(InvalidValueError) as caught:
        ResolvedBudget.resolve([BudgetLimits()])
    assert caught.value.dimensions == tuple(each.name for each in BUDGET_DIMENSIONS)


def test_a_subset_above_its_inclusive_dimension_is_lowered_to_it() -> None:
    resolved = ResolvedBudget.resolve(
        [BudgetLimits.system_default(), BudgetLimits.of(tool_calls=3, input_tokens=5, output_tokens=7)]
    )
    assert resolved.write_calls == ExecutionCount(3)
    assert resolved.cached_input_tokens == TokenCount(5)
    assert resolved.reasoning_tokens == TokenCount(7)


@pytest.mark.parametrize(
    ("subset", "inclusive"),
    [
        ("write_calls", "tool_calls"),
        ("cached_input_tokens", "input_tokens"),
        ("reasoning_tokens", "output_tokens"),
    ],
)
def test_a_stated_budget_must_be_lowered_already(subset: str, inclusive: str) -> None:
    dimension = next(each for each in BUDGET_DIMENSIONS if each.name == subset)
    with pytest.raises(InvalidValueError) as caught:
        budget(**{subset: dimension.counter(11)})
    assert (caught.value.reason, caught.value.dimensions) == ("invalid_subset", (subset, inclusive))


def test_a_stated_budget_has_a_storable_deadline_and_ordered_costs() -> None:
    with pytest.raises(InvalidValueError, match="deadline_out_of_range"):
        budget(deadline=Timestamp(-1))
    with pytest.raises(InvalidValueError, match="unsorted"):
        budget(costs=(Money.of("USD", 1), Money.of("EUR", 1)))


def test_a_stated_budget_has_values_of_its_units() -> None:
    with pytest.raises(InvalidValueError, match="wrong_type"):
        budget(retries=10)


# --- evaluation -----------------------------------------------------------------------------------------------------


def test_what_is_left_is_limit_minus_usage() -> None:
    usage = BudgetUsage.of(tool_calls=4, write_calls=4, fan_out=10, known_costs={"EUR": 30})
    left = budget().remaining(usage, JUST_BEFORE)
    assert left.tool_calls == ExecutionCount(6)
    assert left.write_calls == ExecutionCount(6)
    assert left.fan_out == ExecutionCount(0)
    assert left.retries == ExecutionCount(10)
    assert left.costs == (Money.of("EUR", 70),)
    assert left.deadline == NOON


def test_a_ceiling_without_charges_is_left_whole() -> None:
    assert budget().remaining(BudgetUsage.zero(), JUST_BEFORE).costs == (Money.of("EUR", 100),)


@pytest.mark.parametrize("late", [0, 1])
def test_the_deadline_itself_is_too_late(late: int) -> None:
    observed = Timestamp(NOON.micros + late)
    error = exceeded(BudgetUsage.of(retries=11), observed)
    assert (error.reason, error.dimension) == ("deadline", "deadline")
    assert (error.limit, error.actual) == (str(NOON), str(observed))


@pytest.mark.parametrize("dimension", COUNTER_DIMENSIONS, ids=lambda each: each.name)
def test_a_counter_may_reach_its_limit_and_not_exceed_it(dimension: BudgetDimension) -> None:
    inclusive: dict[str, Any] = {dimension.subset_of: dimension.counter(20)} if dimension.subset_of else {}
    used: dict[str, Any] = {dimension.subset_of: 11} if dimension.subset_of else {}
    left = budget(**inclusive).remaining(BudgetUsage.of(**used | {dimension.name: 10}), JUST_BEFORE)
    assert left.counter(dimension) == dimension.counter(0)
    error = exceeded(BudgetUsage.of(**used | {dimension.name: 11}), **inclusive)
    assert (error.reason, error.dimension, error.limit, error.actual) == ("limit", dimension.name, "10", "11")


def test_counters_come_in_the_order_of_the_table_and_before_costs() -> None:
    error = exceeded(BudgetUsage.of(artifact_bytes=11, graph_depth=11, known_costs={"USD": 1}))
    assert error.dimension == "graph_depth"


def test_a_currency_without_a_ceiling_is_refused_even_for_nothing() -> None:
    error = exceeded(BudgetUsage.of(known_costs={"EUR": 101, "USD": 0}, unpriced_cost_events=1))
    assert (error.reason, error.dimension, error.currency) == ("unbudgeted_currency", "costs", "USD")
    assert (error.limit, error.actual) == (None, "0")


def test_a_cost_may_reach_its_ceiling_and_not_exceed_it() -> None:
    at_ceiling = BudgetUsage.of(known_costs={"EUR": 100})
    assert budget().remaining(at_ceiling, JUST_BEFORE).costs == (Money.of("EUR", 0),)
    error = exceeded(BudgetUsage.of(known_costs={"EUR": 101}, unpriced_cost_events=1))
    assert (error.reason, error.currency, error.limit, error.actual) == ("cost", "EUR", "100", "101")


def test_unpriced_is_never_free() -> None:
    error = exceeded(BudgetUsage.of(unpriced_cost_events=2))
    assert (error.reason, error.dimension, error.limit, error.actual) == ("unpriced_cost", "costs", "0", "2")


# --- narrowing ------------------------------------------------------------------------------------------------------


def test_a_budget_narrows_itself() -> None:
    assert budget().narrows(budget())


@pytest.mark.parametrize("dimension", COUNTER_DIMENSIONS, ids=lambda each: each.name)
def test_no_counter_may_be_above_the_parents(dimension: BudgetDimension) -> None:
    inclusive = {dimension.subset_of: dimension.counter(20)} if dimension.subset_of else {}
    parent, child = budget(**inclusive), budget(**inclusive, **{dimension.name: dimension.counter(11)})
    assert not child.narrows(parent)
    assert parent.narrows(child)


def test_no_deadline_may_be_after_the_parents() -> None:
    assert budget(deadline=JUST_BEFORE).narrows(budget())
    assert not budget().narrows(budget(deadline=JUST_BEFORE))


def test_no_ceiling_may_be_above_the_parents() -> None:
    assert budget(costs=(Money.of("EUR", 99),)).narrows(budget())
    assert budget(costs=()).narrows(budget())
    assert not budget(costs=(Money.of("EUR", 101),)).narrows(budget())


def test_a_currency_that_the_parent_lacks_is_refused_at_zero() -> None:
    assert not budget(costs=(Money.of("EUR", 1), Money.of("USD", 0))).narrows(budget())
