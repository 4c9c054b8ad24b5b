"""One layer of limits, and how two become one."""

from __future__ import annotations

import pytest

from agentruns.domain.budget_dimensions import BUDGET_DIMENSIONS
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.money import Money
from agentruns.domain.numbers import ByteCount, ExecutionCount, TokenCount
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvalidValueError

EUR, USD = Money.of("EUR", 5), Money.of("USD", 7)


def refused(**members: object) -> str:
    with pytest.raises(InvalidValueError) as caught:
        BudgetLimits(**members)  # type: ignore[arg-type]  # whatever the test says
    assert caught.value.type_name == "BudgetLimits"
    return caught.value.reason


def test_limits_without_an_opinion_are_empty() -> None:
    assert BudgetLimits().is_empty
    assert BudgetLimits().stated == ()


def test_empty_costs_are_an_opinion() -> None:
    limits = BudgetLimits(costs=())
    assert not limits.is_empty
    assert limits.stated == ("costs",)


def test_plain_values_become_the_classes_of_their_units() -> None:
    limits = BudgetLimits.of(
        deadline=Timestamp(1), tool_calls=10, input_tokens=20, event_bytes=30, costs={"USD": 7, "EUR": 5}
    )
    assert limits == BudgetLimits(
        deadline=Timestamp(1),
        tool_calls=ExecutionCount(10),
        input_tokens=TokenCount(20),
        event_bytes=ByteCount(30),
        costs=(EUR, USD),
    )


def test_costs_are_taken_as_money_in_any_order() -> None:
    assert BudgetLimits.of(costs=[USD, EUR]).costs == (EUR, USD)
    assert BudgetLimits.of(costs=()).costs == ()
    assert BudgetLimits.of().costs is None


def test_an_unknown_dimension_is_refused() -> None:
    with pytest.raises(TypeError):
        BudgetLimits.of(tool_call=10)


def test_a_value_of_another_unit_is_refused() -> None:
    assert refused(tool_calls=10) == "wrong_type"
    assert refused(tool_calls=TokenCount(10)) == "wrong_type"
    assert refused(deadline=10) == "wrong_type"
    assert refused(costs=[EUR]) == "wrong_type"
    assert refused(costs=("EUR",)) == "wrong_type"


@pytest.mark.parametrize("micros", [-1, Timestamp.STORED_MAX.micros + 1])
def test_a_deadline_that_no_column_holds_is_refused(micros: int) -> None:
    assert refused(deadline=Timestamp(micros)) == "deadline_out_of_range"


@pytest.mark.parametrize("micros", [0, Timestamp.STORED_MAX.micros])
def test_a_deadline_at_either_end_is_accepted(micros: int) -> None:
    assert BudgetLimits(deadline=Timestamp(micros)).stated == ("deadline",)


def test_costs_have_one_form() -> None:
    assert refused(costs=(USD, EUR)) == "unsorted"
    assert refused(costs=(EUR, EUR)) == "duplicate"


def test_a_seventeenth_currency_is_refused() -> None:
    currencies = tuple(Money.of(f"AA{chr(65 + index)}", 1) for index in range(17))
    assert BudgetLimits(costs=currencies[:16]).costs == currencies[:16]
    assert refused(costs=currencies) == "too_many_currencies"


def test_the_smaller_opinion_stays() -> None:
    one = BudgetLimits.of(tool_calls=10, retries=3, deadline=Timestamp(5))
    two = BudgetLimits.of(tool_calls=4, fan_out=2, deadline=Timestamp(9))
    assert one.merge(two) == BudgetLimits.of(tool_calls=4, retries=3, fan_out=2, deadline=Timestamp(5))


def test_a_currency_of_one_stating_layer_only_disappears() -> None:
    one = BudgetLimits.of(costs={"EUR": 5, "USD": 7})
    two = BudgetLimits.of(costs={"EUR": 9, "GBP": 1})
    assert one.merge(two) == BudgetLimits.of(costs={"EUR": 5})


def test_denying_every_charge_stays_denied() -> None:
    assert BudgetLimits.of(costs={"EUR": 5}).merge(BudgetLimits(costs=())).costs == ()
    assert BudgetLimits.of(costs={"EUR": 5}).merge(BudgetLimits()).costs == (EUR,)


def test_the_system_default_states_every_dimension_and_no_money() -> None:
    default = BudgetLimits.system_default()
    assert {each.name: getattr(default, each.name) for each in BUDGET_DIMENSIONS} == {
        each.name: each.system_default for each in BUDGET_DIMENSIONS
    }
    assert default.costs == ()
    assert default == BudgetLimits.system_default()


def test_the_system_default_takes_a_deadline_and_costs() -> None:
    limits = BudgetLimits.system_default(deadline=Timestamp(3), costs=[Money.of("EUR", 5_000_000)])
    assert limits.deadline == Timestamp(3)
    assert limits.costs == (Money.of("EUR", 5_000_000),)
    assert limits.retries == ExecutionCount(1_024)
