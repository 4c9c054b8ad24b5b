"""How an agent with a model works: turns, repairs and calls of tools."""

from __future__ import annotations

from enum import Enum, unique
from typing import ClassVar, TypeAlias

from attrs import frozen

from agentruns.domain.members import check_bound, check_members
from agentruns.domain.numbers import ExecutionCount
from agentruns.domain.wire import register_union
from agentruns.errors import InvalidValueError

MAX_MODEL_TURNS = 1_024
MAX_REPAIR_TURNS = 64
MAX_TOOL_CALLS_PER_TURN = 1_024


@unique
class StructuredOutputMode(Enum):
    """Say how a model is made to answer in the form of the output schema."""

    MODEL_NATIVE = "model_native"
    TOOL_CALL = "tool_call"


@frozen(kw_only=True)
class SequentialTools:
    """Call one tool after the other."""

    mode: ClassVar[str] = "sequential"


@frozen(kw_only=True)
class ParallelReadOnlyTools:
    """Call tools that only read at the same time, 2..``max_tool_calls_per_turn`` of them."""

    mode: ClassVar[str] = "parallel_read_only"

    max_concurrency: ExecutionCount

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "max_concurrency", 2, MAX_TOOL_CALLS_PER_TURN)


ToolConcurrency: TypeAlias = SequentialTools | ParallelReadOnlyTools


@frozen(kw_only=True)
class AgentExecution:
    """Bound the loop between a model and its tools.

    Attributes:
        structured_output: how the output gets its form.
        max_model_turns: 1..1 024.
        max_output_repair_turns: 0..64, and fewer than the model turns.
        max_tool_calls_per_turn: 0..1 024; 0 exactly without tools.
        tool_concurrency: one after the other, or reading tools side by side.
    """

    structured_output: StructuredOutputMode
    max_model_turns: ExecutionCount
    max_output_repair_turns: ExecutionCount
    max_tool_calls_per_turn: ExecutionCount
    tool_concurrency: ToolConcurrency

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "max_model_turns", 1, MAX_MODEL_TURNS)
        check_bound(self, "max_output_repair_turns", 0, MAX_REPAIR_TURNS)
        if self.max_output_repair_turns >= self.max_model_turns:
            raise InvalidValueError(type_name="AgentExecution", reason="too_many_repair_turns")
        check_bound(self, "max_tool_calls_per_turn", 0, MAX_TOOL_CALLS_PER_TURN)
        if (
            isinstance(self.tool_concurrency, ParallelReadOnlyTools)
            and self.tool_concurrency.max_concurrency > self.max_tool_calls_per_turn
        ):
            raise InvalidValueError(type_name="AgentExecution", reason="too_much_concurrency")


register_union(
    ToolConcurrency, tag="mode", variants={each.mode: each for each in (SequentialTools, ParallelReadOnlyTools)}
)
