"""What a call charged and what it holds back, as its event states them: only what is not zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from attrs import frozen

from agentruns.domain.budget_dimensions import COUNTER_DIMENSIONS, COUNTER_TYPES
from agentruns.domain.ledger.codecs import Codec, array, as_object, invalid, member
from agentruns.domain.members import check_members
from agentruns.domain.money import Money
from agentruns.domain.numbers import ExecutionCount, MicroUnits, TokenCount
from agentruns.domain.scalars import CurrencyCode
from agentruns.domain.usage import BudgetUsage

_COUNTERS: Final = {each.name: each for each in COUNTER_DIMENSIONS}
_CHARGED: Final = frozenset({*_COUNTERS, "known_costs", "unpriced_cost_events"})
#: In the order of the names' bytes, which is that of canonical members.
_CHARGED_IN_ORDER: Final = tuple(sorted(_CHARGED))
_RESERVED: Final = frozenset({"input_tokens", "output_tokens"})
_MONEY: Final = frozenset({"currency", "micro_units"})
_NO_TOKENS: Final = TokenCount(0)


@frozen(kw_only=True)
class TokenReserve:
    """Hold tokens against later calls where a model's usage is unknown. A reserve is never usage."""

    input_tokens: TokenCount = _NO_TOKENS
    output_tokens: TokenCount = _NO_TOKENS

    def __attrs_post_init__(self) -> None:
        check_members(self)

    def plus(self, other: TokenReserve) -> TokenReserve:
        """Add another reserve.

        Raises:
            InvalidValueError: ``overflow``.
        """
        return TokenReserve(
            input_tokens=self.input_tokens.plus(other.input_tokens),
            output_tokens=self.output_tokens.plus(other.output_tokens),
        )


def _write_charged(usage: BudgetUsage) -> bytes:
    return b"{" + b",".join(_charged_members(usage)) + b"}"


def _charged_members(usage: BudgetUsage) -> Iterator[bytes]:
    for name in _CHARGED_IN_ORDER:
        value = getattr(usage, name)
        if name == "known_costs":
            if value:
                yield b'"known_costs":' + _COSTS.write(value)
        elif value.value:
            yield f'"{name}":"{value}"'.encode("ascii")


def _read_charged(tree: object) -> BudgetUsage:
    members = dict(as_object(tree, _CHARGED))
    costs = _COSTS.read(members.pop("known_costs", []))
    unpriced = ExecutionCount.parse(members.pop("unpriced_cost_events", "0"))
    counters: dict[str, Any] = {
        name: COUNTER_TYPES[each.unit].parse(members[name]) if name in members else each.counter(0)
        for name, each in _COUNTERS.items()
    }
    return BudgetUsage(known_costs=costs, unpriced_cost_events=unpriced, **counters)


def _write_money(money: Money) -> bytes:
    return f'{{"currency":"{money.currency}","micro_units":"{money.micro_units}"}}'.encode("ascii")


def _read_money(tree: object) -> Money:
    members = as_object(tree, _MONEY)
    if len(members) < len(_MONEY):
        raise invalid("missing_member")
    return Money(currency=CurrencyCode.parse(members["currency"]), micro_units=MicroUnits.parse(members["micro_units"]))


def _write_reserved(reserve: TokenReserve) -> bytes:
    stated = [(name, getattr(reserve, name)) for name in sorted(_RESERVED)]
    members = [f'"{name}":"{value}"'.encode("ascii") for name, value in stated if value.value]
    return b"{" + b",".join(members) + b"}"


def _read_reserved(tree: object) -> TokenReserve:
    members = as_object(tree, _RESERVED)
    return TokenReserve(**{name: TokenCount.parse(text) for name, text in members.items()})


_COSTS: Final = array(Codec(_write_money, _read_money))

CHARGED: Final = member(Codec(_write_charged, _read_charged))
RESERVED: Final = member(Codec(_write_reserved, _read_reserved))
