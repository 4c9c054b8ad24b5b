"""The one definition of what a run's budget counts; everything about budgets loops over it."""

from __future__ import annotations

from enum import Enum, unique
from typing import TypeAlias

from attrs import frozen

from agentruns.domain.money import Money
from agentruns.domain.numbers import ByteCount, ExecutionCount, TokenCount
from agentruns.domain.timestamps import Timestamp

CounterValue: TypeAlias = ExecutionCount | TokenCount | ByteCount
DimensionValue: TypeAlias = Timestamp | CounterValue | tuple[Money, ...]

_MIB = 1024 * 1024
_GIB = 1024 * _MIB

#: Currencies that limits, a budget or usage may name.
MAX_CURRENCIES = 16


@unique
class BudgetUnit(Enum):
    """Say in what a dimension is measured."""

    INSTANT = "instant"
    EXECUTIONS = "executions"
    TOKENS = "tokens"
    BYTES = "bytes"
    MONEY = "money"


@unique
class BudgetKind(Enum):
    """Say how usage comes together: the greatest value seen, the sum, or not at all for an instant."""

    INSTANT = "instant"
    HIGH_WATER = "high_water"
    CUMULATIVE = "cumulative"


@frozen(kw_only=True)
class BudgetDimension:
    """Describe one thing that a budget limits.

    Attributes:
        name: the member of :class:`BudgetLimits`, :class:`ResolvedBudget` and, for counters, :class:`BudgetUsage`.
        counts: what it counts, for people.
        subset_of: the dimension that includes this one, if one does.
        system_default: the value that the system's default layer states.
    """

    name: str
    unit: BudgetUnit
    kind: BudgetKind
    counts: str
    system_default: DimensionValue
    subset_of: str | None = None

    @property
    def is_counter(self) -> bool:
        """It is a number of executions, tokens or bytes: neither the deadline nor money."""
        return self.unit in COUNTER_TYPES

    def counter(self, value: int) -> CounterValue:
        """Give ``value`` in the class of this dimension's unit."""
        return COUNTER_TYPES[self.unit](value)


COUNTER_TYPES: dict[BudgetUnit, type[CounterValue]] = {
    BudgetUnit.EXECUTIONS: ExecutionCount,
    BudgetUnit.TOKENS: TokenCount,
    BudgetUnit.BYTES: ByteCount,
}


def _counter(
    name: str,
    unit: BudgetUnit,
    default: int,
    counts: str,
    *,
    kind: BudgetKind = BudgetKind.CUMULATIVE,
    subset_of: str | None = None,
) -> BudgetDimension:
    return BudgetDimension(
        name=name,
        unit=unit,
        kind=kind,
        counts=counts,
        subset_of=subset_of,
        system_default=COUNTER_TYPES[unit](default),
    )


_EXECUTIONS, _TOKENS, _BYTES = BudgetUnit.EXECUTIONS, BudgetUnit.TOKENS, BudgetUnit.BYTES
_HIGH_WATER = BudgetKind.HIGH_WATER

BUDGET_DIMENSIONS: tuple[BudgetDimension, ...] = (
    BudgetDimension(
        name="deadline",
        unit=BudgetUnit.INSTANT,
        kind=BudgetKind.INSTANT,
        counts="the run must be over before it",
        system_default=Timestamp.STORED_MAX,
    ),
    _counter("graph_depth", _EXECUTIONS, 16, "nesting of graphs and delegated runs", kind=_HIGH_WATER),
    _counter("graph_steps", _EXECUTIONS, 1_024, "supersteps"),
    _counter("model_attempts", _EXECUTIONS, 2_048, "physical model exchanges"),
    _counter("model_turns", _EXECUTIONS, 1_024, "logical model invocations"),
    _counter("tool_calls", _EXECUTIONS, 4_096, "logical tool invocations"),
    _counter("write_calls", _EXECUTIONS, 1_024, "tool invocations of a writing risk", subset_of="tool_calls"),
    _counter("remote_agent_delegations", _EXECUTIONS, 64, "runs handed to other agents"),
    _counter("retries", _EXECUTIONS, 1_024, "repeated attempts of any kind"),
    _counter("concurrent_branches", _EXECUTIONS, 64, "nodes running at once", kind=_HIGH_WATER),
    _counter("fan_out", _EXECUTIONS, 1_024, "size of one ready set", kind=_HIGH_WATER),
    _counter("input_tokens", _TOKENS, 50_000_000, "tokens read by models"),
    _counter("cached_input_tokens", _TOKENS, 50_000_000, "tokens read from a cache", subset_of="input_tokens"),
    _counter("reasoning_tokens", _TOKENS, 10_000_000, "tokens of reasoning", subset_of="output_tokens"),
    _counter("output_tokens", _TOKENS, 10_000_000, "tokens written by models"),
    _counter("input_bytes", _BYTES, _GIB, "request input and model request content"),
    _counter("output_bytes", _BYTES, 256 * _MIB, "results and model responses"),
    _counter("event_bytes", _BYTES, 256 * _MIB, "journal payloads"),
    _counter("checkpoint_bytes", _BYTES, 4 * _GIB, "checkpoint records"),
    _counter("artifact_bytes", _BYTES, 4 * _GIB, "artifacts"),
    BudgetDimension(
        name="costs",
        unit=BudgetUnit.MONEY,
        kind=BudgetKind.CUMULATIVE,
        counts="priced charges, per currency",
        system_default=(),
    ),
)

#: Rows 2 to 20 of the table: what is counted.
COUNTER_DIMENSIONS: tuple[BudgetDimension, ...] = tuple(each for each in BUDGET_DIMENSIONS if each.is_counter)

#: Each dimension that is a part of another, beside the one that includes it.
SUBSETS: tuple[tuple[str, str], ...] = tuple(
    (each.name, each.subset_of) for each in BUDGET_DIMENSIONS if each.subset_of
)
