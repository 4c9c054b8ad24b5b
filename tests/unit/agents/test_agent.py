"""The definition of an agent: each rule alone, and which comes first."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.capability import CapabilityKind, CapabilityLifecycle
from agentruns.domain.execution import AgentExecution, ParallelReadOnlyTools, SequentialTools, StructuredOutputMode
from agentruns.domain.identity import Modality
from agentruns.domain.instructions import AgentInstruction, InstructionArtifact, InstructionText
from agentruns.domain.model import StructuredOutput
from agentruns.domain.numbers import ExecutionCount
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode, encode, from_wire, to_wire
from agentruns.errors import InvalidValueError
from agentruns.testing.model_samples import (
    execution,
    instruction,
    model,
    model_agent,
    model_capabilities,
    tool,
)
from agentruns.testing.outcome_samples import artifact
from agentruns.testing.samples import agent, identity, metadata

MIB = 1024 * 1024
BY_TOOL = StructuredOutputMode.TOOL_CALL
RETIRED = CapabilityLifecycle.RETIRED


def refusal(descriptor: AgentDescriptor, **members: Any) -> str:
    with pytest.raises(InvalidValueError) as caught:
        evolve(descriptor, **members)
    assert caught.value.type_name == "AgentDescriptor"
    return caught.value.reason


def tools(count: int) -> tuple[Any, ...]:
    return tuple(tool(f"tool_{index:04d}") for index in range(count))


def test_an_agent_of_plain_code_has_nothing_of_a_model() -> None:
    plain = agent()
    assert (plain.model, plain.instructions, plain.tools, plain.execution) == (None, (), (), None)
    assert refusal(plain, instructions=(instruction(),)) == "model_free_mismatch"
    assert refusal(plain, tools=(tool(),)) == "model_free_mismatch"
    assert refusal(plain, execution=execution()) == "model_free_mismatch"


def test_an_agent_with_a_model_has_a_loop_and_an_instruction() -> None:
    assert refusal(model_agent(), execution=None) == "model_free_mismatch"
    assert refusal(model_agent(), instructions=()) == "model_free_mismatch"


def test_an_agent_is_an_agent() -> None:
    assert refusal(agent(), metadata=metadata(kind=CapabilityKind.MODEL)) == "wrong_kind"


def test_a_retired_model_is_not_used() -> None:
    assert refusal(model_agent(), model=model(lifecycle=RETIRED)) == "retired_model"
    assert model_agent(uses=model(lifecycle=CapabilityLifecycle.DEPRECATED)).model is not None


def test_calls_per_turn_are_zero_exactly_without_tools() -> None:
    assert refusal(model_agent(), execution=execution(tool_calls_per_turn=1)) == "tool_calls_mismatch"
    assert refusal(model_agent(tools=[tool()]), execution=execution()) == "tool_calls_mismatch"


def test_the_name_of_the_synthetic_tool_is_reserved_where_it_is_used() -> None:
    named = [tool("agentruns_final_output")]
    assert model_agent(tools=named).tools[0].name == "agentruns_final_output"
    by_tool = execution(structured_output=BY_TOOL, tool_calls_per_turn=1)
    assert refusal(model_agent(tools=named), execution=by_tool) == "reserved_tool_name"


def test_definitions_are_at_most_128_with_the_synthetic_one() -> None:
    by_tool = execution(structured_output=BY_TOOL, tool_calls_per_turn=1)
    assert len(model_agent(tools=tools(128)).tools) == 128
    assert len(model_agent(tools=tools(127), loop=by_tool).tools) == 127
    assert refusal(model_agent(tools=tools(128)), execution=by_tool) == "too_many_tool_definitions"


@pytest.mark.parametrize(("definitions", "calls"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_a_model_must_take_every_definition(definitions: int, calls: int) -> None:
    limited = model(capabilities=model_capabilities(tool_definitions=definitions, tool_calls=calls))
    assert refusal(model_agent(tools=tools(2)), model=limited) == "model_lacks_tool_calling"
    if definitions == calls == 1:
        assert model_agent(tools=tools(1), uses=limited).model == limited
    else:
        assert refusal(model_agent(tools=tools(1)), model=limited) == "model_lacks_tool_calling"
    assert model_agent(uses=limited).model == limited


def test_the_synthetic_tool_is_a_definition() -> None:
    unable = model(capabilities=model_capabilities(tool_definitions=0, tool_calls=0))
    assert (
        refusal(model_agent(uses=unable), execution=execution(structured_output=BY_TOOL)) == "model_lacks_tool_calling"
    )


@pytest.mark.parametrize("output", [StructuredOutput.NONE, StructuredOutput.JSON_OBJECT])
def test_native_output_needs_a_model_that_follows_schemas(output: StructuredOutput) -> None:
    weak = model(capabilities=model_capabilities(structured_output=output))
    assert refusal(model_agent(), model=weak) == "model_lacks_structured_output"
    assert model_agent(uses=weak, loop=execution(structured_output=BY_TOOL)).model == weak


def test_a_definition_has_no_deadline() -> None:
    assert refusal(agent(), budget_limits=BudgetLimits(deadline=Timestamp(1))) == "deadline_in_definition"
    assert agent(budget_limits=BudgetLimits.of(retries=1)).budget_limits == BudgetLimits.of(retries=1)


def test_rules_come_in_their_order() -> None:
    """Break one more rule at a time, from the last to the first."""
    late = BudgetLimits(deadline=Timestamp(1))
    unable = model_capabilities(structured_output=StructuredOutput.NONE, tool_definitions=0, tool_calls=0)
    broken: dict[str, Any] = {"budget_limits": late}
    for reason, members in (
        ("deadline_in_definition", {}),
        ("model_lacks_structured_output", {"model": model(capabilities=unable)}),
        ("model_lacks_tool_calling", {"tools": tools(128), "execution": execution(tool_calls_per_turn=1)}),
        ("too_many_tool_definitions", {"execution": execution(tool_calls_per_turn=1, structured_output=BY_TOOL)}),
        ("reserved_tool_name", {"tools": (tool("agentruns_final_output"), *tools(127))}),
        ("tool_calls_mismatch", {"execution": execution(structured_output=BY_TOOL)}),
        ("retired_model", {"model": model(capabilities=unable, lifecycle=RETIRED)}),
        ("model_free_mismatch", {"execution": None}),
        ("wrong_kind", {"metadata": metadata(kind=CapabilityKind.TOOL)}),
        ("duplicate_tool", {"tools": (tool(), tool())}),
        ("duplicate_instruction", {"instructions": (instruction(), instruction())}),
    ):
        broken |= members
        assert refusal(model_agent(), **broken) == reason


# --- tools ----------------------------------------------------------------------------------------------------------


def test_the_order_in_which_tools_are_given_does_not_matter() -> None:
    one, two, three = tool("a"), tool("b"), tool("B")
    given = model_agent(tools=[two, one, three])
    assert given.tools == (three, one, two)
    assert given.digest == model_agent(tools=[three, two, one]).digest
    assert refusal(given, tools=(one, two, three)) == "unsorted"


def test_a_tools_name_is_unique_across_owners_and_versions() -> None:
    other = evolve(tool(), metadata=evolve(tool().metadata, identity=identity("other", "2.0.0")))
    with pytest.raises(InvalidValueError, match="duplicate_tool"):
        model_agent(tools=[tool(), other])


def test_a_tool_is_judged_when_it_is_added() -> None:
    retired = tool("zz", lifecycle=RETIRED)
    with pytest.raises(InvalidValueError, match="retired_tool"):
        model_agent(tools=[retired])
    with pytest.raises(InvalidValueError, match="duplicate_tool"):
        model_agent(tools=[tool("a"), tool("a", lifecycle=RETIRED)])
    with pytest.raises(InvalidValueError, match="too_many_tools"):
        model_agent(tools=[*tools(128), retired])


# --- instructions ---------------------------------------------------------------------------------------------------


def test_instructions_keep_their_order_and_are_at_most_thirty_two() -> None:
    several = tuple(instruction(f"line-{index}") for index in range(33))
    assert model_agent(instructions=several[31::-1]).instructions == several[31::-1]
    assert refusal(model_agent(), instructions=several) == "too_many_instructions"


def test_an_instruction_is_a_text_or_an_artifact_of_text() -> None:
    stored = AgentInstruction(identity=identity("stored"), content=InstructionArtifact(artifact=artifact()))
    assert decode(encode(model_agent(instructions=[stored, instruction()])), AgentDescriptor).instructions[0] == stored
    with pytest.raises(InvalidValueError) as caught:
        InstructionArtifact(artifact=artifact(modality=Modality.IMAGE))
    assert (caught.value.type_name, caught.value.reason) == ("InstructionArtifact", "wrong_modality")


def test_a_text_is_at_most_a_mebibyte_and_private() -> None:
    assert InstructionText(text="x" * MIB).size == MIB
    assert InstructionText(text="").size == 0
    assert "canary" not in repr(instruction(text="canary"))
    with pytest.raises(InvalidValueError, match="too_long"):
        InstructionText(text="é" * (MIB // 2) + "x")


def test_instructions_are_bounded_together() -> None:
    whole = AgentInstruction(identity=identity("a"), content=InstructionArtifact(artifact=artifact(size=8 * MIB - 1)))
    assert len(model_agent(instructions=[whole, instruction(text="x")]).instructions) == 2
    assert refusal(model_agent(), instructions=(whole, instruction(text="xx"))) == "instructions_too_large"


# --- the loop -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "reason", "path"),
    [
        ({"max_model_turns": 0}, "out_of_range", ("max_model_turns",)),
        ({"max_model_turns": 1_025}, "out_of_range", ("max_model_turns",)),
        ({"max_output_repair_turns": 65}, "out_of_range", ("max_output_repair_turns",)),
        ({"max_output_repair_turns": 8}, "too_many_repair_turns", ()),
        ({"max_tool_calls_per_turn": 1_025}, "out_of_range", ("max_tool_calls_per_turn",)),
    ],
)
def test_the_loop_is_bounded(members: dict[str, int], reason: str, path: tuple[str, ...]) -> None:
    counts: Any = {name: ExecutionCount(value) for name, value in members.items()}
    with pytest.raises(InvalidValueError) as caught:
        evolve(execution(), **counts)
    assert (caught.value.type_name, caught.value.reason, caught.value.path) == ("AgentExecution", reason, path)


def test_the_loop_at_its_bounds_is_accepted() -> None:
    assert execution(model_turns=1).max_model_turns == ExecutionCount(1)
    widest = execution(model_turns=1_024, repair_turns=64, tool_calls_per_turn=1_024)
    assert widest.max_output_repair_turns == ExecutionCount(64)


def test_tools_run_side_by_side_within_the_calls_of_a_turn() -> None:
    pair = ParallelReadOnlyTools(max_concurrency=ExecutionCount(2))
    assert execution(tool_calls_per_turn=2, tool_concurrency=pair).tool_concurrency == pair
    with pytest.raises(InvalidValueError, match="too_much_concurrency"):
        execution(tool_calls_per_turn=1, tool_concurrency=pair)
    for count in (1, 1_025):
        with pytest.raises(InvalidValueError, match="out_of_range"):
            ParallelReadOnlyTools(max_concurrency=ExecutionCount(count))


@pytest.mark.parametrize(
    ("concurrency", "wire"),
    [
        (SequentialTools(), {"mode": "sequential"}),
        (
            ParallelReadOnlyTools(max_concurrency=ExecutionCount(2)),
            {"mode": "parallel_read_only", "max_concurrency": "2"},
        ),
    ],
)
def test_concurrency_has_its_mode_on_the_wire(concurrency: Any, wire: dict[str, str]) -> None:
    tree = to_wire(execution(tool_calls_per_turn=4, tool_concurrency=concurrency))
    assert isinstance(tree, dict)
    assert tree["tool_concurrency"] == wire
    assert from_wire(tree, AgentExecution).tool_concurrency == concurrency


def test_a_descriptor_is_one_record_on_the_wire() -> None:
    for descriptor in (agent(), model_agent(tools=tools(2))):
        assert decode(encode(descriptor), AgentDescriptor) == descriptor
    plain = to_wire(agent())
    assert isinstance(plain, dict)
    assert set(plain) == {"metadata", "input_schema", "output_schema", "instructions", "tools", "budget_limits"}
