"""Amounts of money per currency: at most sixteen, each currency once, in the order of their codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TypeAlias

from agentruns.domain.budget_dimensions import MAX_CURRENCIES
from agentruns.domain.money import Money
from agentruns.domain.scalars import CurrencyCode
from agentruns.errors import InvalidValueError

Costs: TypeAlias = tuple[Money, ...]


def check_costs(type_name: str, costs: Costs) -> None:
    """Refuse costs that are not in their one form.

    Raises:
        InvalidValueError: ``too_many_currencies``, ``duplicate`` or ``unsorted``.
    """
    if len(costs) > MAX_CURRENCIES:
        raise InvalidValueError(type_name=type_name, reason="too_many_currencies")
    for before, after in pairwise([each.currency for each in costs]):
        if before == after:
            raise InvalidValueError(type_name=type_name, reason="duplicate")
        if before > after:
            raise InvalidValueError(type_name=type_name, reason="unsorted")


def costs_of(amounts: Mapping[str, int] | Iterable[Money]) -> Costs:
    """Put amounts into order: micro-units by currency code, or money in any order."""
    if isinstance(amounts, Mapping):
        amounts = [Money.of(code, micro_units) for code, micro_units in amounts.items()]
    return tuple(sorted(amounts, key=lambda each: each.currency))


def by_currency(costs: Costs) -> dict[CurrencyCode, Money]:
    """Look amounts up by their currency."""
    return {each.currency: each for each in costs}


def sum_costs(left: Costs, right: Costs) -> Costs:
    """Add currency by currency; the sum is checked."""
    if not right:
        return left
    total = by_currency(left)
    for each in right:
        known = total.get(each.currency)
        total[each.currency] = each if known is None else known.plus(each)
    return costs_of(total.values())


def lower_costs(left: Costs, right: Costs) -> Costs:
    """Keep the currencies that both name, each at its smaller amount."""
    others = by_currency(right)
    return tuple(
        min(each, others[each.currency], key=lambda money: money.micro_units)
        for each in left
        if each.currency in others
    )
