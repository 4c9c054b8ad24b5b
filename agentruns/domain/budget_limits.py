"""One layer of limits, stated by a policy, a descriptor or a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

from attrs import frozen

from agentruns.domain.budget_dimensions import BUDGET_DIMENSIONS, BudgetDimension, BudgetUnit
from agentruns.domain.costs import check_costs, costs_of, lower_costs
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.money import Money
from agentruns.domain.numbers import ByteCount, ExecutionCount, TokenCount
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvalidValueError


@frozen(kw_only=True, cache_hash=True)
class BudgetLimits(KeptBytes):
    """State opinions about what a run may use. An absent member is no opinion, never *unlimited*.

    The members are the rows of :data:`~agentruns.domain.budget_dimensions.BUDGET_DIMENSIONS`.

    Attributes:
        deadline: the run must be over before it; from 1970 to ``Timestamp.STORED_MAX``.
        costs: ceilings per currency. Present and empty, it denies every priced charge.
    """

    deadline: Timestamp | None = None
    graph_depth: ExecutionCount | None = None
    graph_steps: ExecutionCount | None = None
    model_attempts: ExecutionCount | None = None
    model_turns: ExecutionCount | None = None
    tool_calls: ExecutionCount | None = None
    write_calls: ExecutionCount | None = None
    remote_agent_delegations: ExecutionCount | None = None
    retries: ExecutionCount | None = None
    concurrent_branches: ExecutionCount | None = None
    fan_out: ExecutionCount | None = None
    input_tokens: TokenCount | None = None
    cached_input_tokens: TokenCount | None = None
    reasoning_tokens: TokenCount | None = None
    output_tokens: TokenCount | None = None
    input_bytes: ByteCount | None = None
    output_bytes: ByteCount | None = None
    event_bytes: ByteCount | None = None
    checkpoint_bytes: ByteCount | None = None
    artifact_bytes: ByteCount | None = None
    costs: tuple[Money, ...] | None = None

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.deadline is not None:
            check_storable("BudgetLimits", self.deadline)
        if self.costs is not None:
            check_costs("BudgetLimits", self.costs)

    @classmethod
    def of(
        cls,
        *,
        deadline: Timestamp | None = None,
        costs: Mapping[str, int] | Iterable[Money] | None = None,
        **counters: int,
    ) -> BudgetLimits:
        """Make limits from plain integers: ``BudgetLimits.of(tool_calls=10, costs={"EUR": 5_000_000})``."""
        members: dict[str, Any] = dict(counters)
        members |= {
            each.name: each.counter(counters[each.name])
            for each in BUDGET_DIMENSIONS
            if each.is_counter and each.name in counters
        }
        return cls(deadline=deadline, costs=None if costs is None else costs_of(costs), **members)

    @classmethod
    def system_default(
        cls, *, deadline: Timestamp = Timestamp.STORED_MAX, costs: Mapping[str, int] | Iterable[Money] = ()
    ) -> BudgetLimits:
        """State every dimension, so that any request resolves. Equal on every call: no clock is asked.

        Money is never granted by default: whoever wants priced work states its ceilings in ``costs``.
        """
        members: dict[str, Any] = {each.name: each.system_default for each in BUDGET_DIMENSIONS}
        return cls(**members | {"deadline": deadline, "costs": costs_of(costs)})

    @property
    def is_empty(self) -> bool:
        """Nothing is stated. Empty ``costs`` are an opinion."""
        return self == _EMPTY

    @property
    def stated(self) -> tuple[str, ...]:
        """Name the dimensions about which there is an opinion, in the order of the table."""
        return tuple(each.name for each in BUDGET_DIMENSIONS if getattr(self, each.name) is not None)

    def merge(self, other: BudgetLimits) -> BudgetLimits:
        """Keep the smaller of two opinions, member by member.

        Of ``costs`` the currencies stay that both state. Associative, commutative and idempotent.
        """
        return BudgetLimits(**smallest_members((self, other)))


_EMPTY: Final = BudgetLimits()


def smallest_members(layers: Sequence[BudgetLimits]) -> dict[str, Any]:
    """Merge any number of layers, member by member; what nobody states is ``None``."""
    return {
        each.name: _smallest(each, [value for layer in layers if (value := getattr(layer, each.name)) is not None])
        for each in BUDGET_DIMENSIONS
    }


def check_storable(type_name: str, deadline: Timestamp) -> None:
    """Refuse an instant that no column can hold.

    Raises:
        InvalidValueError: ``deadline_out_of_range``.
    """
    if not Timestamp.STORED_MIN <= deadline <= Timestamp.STORED_MAX:
        raise InvalidValueError(type_name=type_name, reason="deadline_out_of_range")


def _smallest(dimension: BudgetDimension, values: list[Any]) -> Any:
    if not values:
        return None
    return reduce(lower_costs, values) if dimension.unit is BudgetUnit.MONEY else min(values)
