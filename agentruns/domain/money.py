"""Amounts of one currency."""

from __future__ import annotations

from typing import Self

from attrs import frozen

from agentruns.domain.members import check_members
from agentruns.domain.numbers import MicroUnits
from agentruns.domain.scalars import CurrencyCode, refuse


@frozen(kw_only=True)
class Money:
    """Hold an amount. Arithmetic stays within one currency.

    Attributes:
        currency: three capitals.
        micro_units: millionths of the currency's unit.
    """

    currency: CurrencyCode
    micro_units: MicroUnits

    def __attrs_post_init__(self) -> None:
        check_members(self)

    @classmethod
    def of(cls, currency: str, micro_units: int) -> Self:
        """Make an amount from plain values: ``Money.of("EUR", 5_000_000)``."""
        return cls(currency=CurrencyCode(currency), micro_units=MicroUnits(micro_units))

    def plus(self, other: Money) -> Money:
        """Add an amount of the same currency.

        Raises:
            InvalidValueError: ``currency_mismatch`` or ``overflow``.
        """
        return Money(currency=self.currency, micro_units=self.micro_units.plus(self._same(other)))

    def minus(self, other: Money) -> Money:
        """Subtract an amount of the same currency.

        Raises:
            InvalidValueError: ``currency_mismatch`` or ``underflow``.
        """
        return Money(currency=self.currency, micro_units=self.micro_units.minus(self._same(other)))

    def _same(self, other: Money) -> MicroUnits:
        if other.currency != self.currency:
            raise refuse(self, "currency_mismatch")
        return other.micro_units
