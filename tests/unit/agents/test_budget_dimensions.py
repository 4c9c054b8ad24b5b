"""The table of dimensions, and that everything is declared as it says."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Union, get_type_hints

import pytest
from attrs import fields

from agentruns.domain.budget import BudgetRemaining, ResolvedBudget
from agentruns.domain.budget_dimensions import (
    BUDGET_DIMENSIONS,
    COUNTER_DIMENSIONS,
    COUNTER_TYPES,
    SUBSETS,
    BudgetDimension,
    BudgetKind,
    BudgetUnit,
)
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.money import Money
from agentruns.domain.numbers import ByteCount, ExecutionCount, TokenCount
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage

GIB = 2**30
MIB = 2**20

TABLE = [
    ("deadline", "instant", "instant", None, "9999-12-31T00:00:00.000000Z"),
    ("graph_depth", "executions", "high_water", None, "16"),
    ("graph_steps", "executions", "cumulative", None, "1024"),
    ("model_attempts", "executions", "cumulative", None, "2048"),
    ("model_turns", "executions", "cumulative", None, "1024"),
    ("tool_calls", "executions", "cumulative", None, "4096"),
    ("write_calls", "executions", "cumulative", "tool_calls", "1024"),
    ("remote_agent_delegations", "executions", "cumulative", None, "64"),
    ("retries", "executions", "cumulative", None, "1024"),
    ("concurrent_branches", "executions", "high_water", None, "64"),
    ("fan_out", "executions", "high_water", None, "1024"),
    ("input_tokens", "tokens", "cumulative", None, "50000000"),
    ("cached_input_tokens", "tokens", "cumulative", "input_tokens", "50000000"),
    ("reasoning_tokens", "tokens", "cumulative", "output_tokens", "10000000"),
    ("output_tokens", "tokens", "cumulative", None, "10000000"),
    ("input_bytes", "bytes", "cumulative", None, str(GIB)),
    ("output_bytes", "bytes", "cumulative", None, str(256 * MIB)),
    ("event_bytes", "bytes", "cumulative", None, str(256 * MIB)),
    ("checkpoint_bytes", "bytes", "cumulative", None, str(4 * GIB)),
    ("artifact_bytes", "bytes", "cumulative", None, str(4 * GIB)),
    ("costs", "money", "cumulative", None, "()"),
]

FIELD_TYPES = {
    BudgetUnit.INSTANT: Timestamp,
    BudgetUnit.EXECUTIONS: ExecutionCount,
    BudgetUnit.TOKENS: TokenCount,
    BudgetUnit.BYTES: ByteCount,
    BudgetUnit.MONEY: tuple[Money, ...],
}


def declared(cls: type) -> dict[str, object]:
    hints = get_type_hints(cls)
    return {each.name: hints[each.name] for each in fields(cls)}


def field_types(dimensions: tuple[BudgetDimension, ...]) -> dict[str, object]:
    return {each.name: FIELD_TYPES[each.unit] for each in dimensions}


def test_the_table_is_that_of_the_specification() -> None:
    assert [
        (each.name, each.unit.value, each.kind.value, each.subset_of, str(each.system_default))
        for each in BUDGET_DIMENSIONS
    ] == TABLE


def test_counters_are_rows_two_to_twenty() -> None:
    assert BUDGET_DIMENSIONS[1:20] == COUNTER_DIMENSIONS
    assert {each.unit for each in COUNTER_DIMENSIONS} == set(COUNTER_TYPES)


def test_subsets_are_read_off_the_table() -> None:
    assert SUBSETS == (
        ("write_calls", "tool_calls"),
        ("cached_input_tokens", "input_tokens"),
        ("reasoning_tokens", "output_tokens"),
    )


def test_limits_declare_every_dimension_as_optional() -> None:
    assert declared(BudgetLimits) == {
        name: Union[kind, None]  # noqa: UP007  # of a type that is a value here
        for name, kind in field_types(BUDGET_DIMENSIONS).items()
    }
    assert all(each.default is None for each in fields(BudgetLimits))


@pytest.mark.parametrize("cls", [ResolvedBudget, BudgetRemaining])
def test_budgets_declare_every_dimension_as_required(cls: type) -> None:
    assert declared(cls) == field_types(BUDGET_DIMENSIONS)


def test_usage_declares_the_counters_the_costs_and_the_unpriced() -> None:
    assert declared(BudgetUsage) == field_types(COUNTER_DIMENSIONS) | {
        "known_costs": tuple[Money, ...],
        "unpriced_cost_events": ExecutionCount,
    }


def test_the_shipped_schema_document_declares_usage_as_the_table_does() -> None:
    document = json.loads((files("agentruns.schemas") / "agent-run-snapshot-1.0.0.json").read_text("utf-8"))
    usage = document["$defs"]["usage"]
    names = [each.name for each in COUNTER_DIMENSIONS]
    assert list(usage["properties"]) == [*names, "known_costs", "unpriced_cost_events"]
    assert usage["required"] == list(usage["properties"])


def test_a_counter_is_made_in_the_class_of_its_unit() -> None:
    by_name = {each.name: each for each in BUDGET_DIMENSIONS}
    assert by_name["tool_calls"].counter(3) == ExecutionCount(3)
    assert by_name["input_tokens"].counter(3) == TokenCount(3)
    assert by_name["event_bytes"].counter(3) == ByteCount(3)
    assert not by_name["deadline"].is_counter
    assert not by_name["costs"].is_counter
    assert by_name["costs"].kind is BudgetKind.CUMULATIVE
