"""The definition of an agent, snapshotted whole into every admission."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Self

from attrs import frozen

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.capability import CapabilityKind, CapabilityMetadata
from agentruns.domain.execution import AgentExecution, StructuredOutputMode
from agentruns.domain.identity import SchemaReference
from agentruns.domain.instructions import AgentInstruction, check_instructions
from agentruns.domain.json_limits import MIB
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.model import MAX_TOOL_DEFINITIONS, ModelDescriptor, StructuredOutput
from agentruns.domain.tool import ToolDescriptor
from agentruns.errors import InvalidValueError

#: The name of the synthetic tool by which a model hands in its output.
FINAL_OUTPUT_TOOL = "agentruns_final_output"
MAX_TOOLS = 128


@frozen(kw_only=True)
class AgentDescriptor(KeptBytes):
    """Define an executable agent.

    Attributes:
        metadata: of kind ``agent``.
        input_schema: of the request's input; the graph's.
        output_schema: of the result's output; the graph's.
        model: absent in an agent whose graph is plain code; then there are no instructions, tools or execution.
        instructions: in the order in which the model gets them.
        tools: sorted by name; :meth:`of` takes them in any order.
        execution: present exactly when ``model`` is.
        budget_limits: what every run of the agent may use at most; may be empty, and states no deadline.
    """

    max_wire_bytes: ClassVar[int] = 16 * MIB

    metadata: CapabilityMetadata
    input_schema: SchemaReference
    output_schema: SchemaReference
    model: ModelDescriptor | None = None
    instructions: tuple[AgentInstruction, ...]
    tools: tuple[ToolDescriptor, ...]
    execution: AgentExecution | None = None
    budget_limits: BudgetLimits

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_instructions("AgentDescriptor", self.instructions)
        _check_tools(self.tools)
        self.metadata.check_kind(self, CapabilityKind.AGENT)
        if self.model is None:
            self._check_model_free()
        else:
            self._check_with(self.model)
        if self.budget_limits.deadline is not None:
            raise _refused("deadline_in_definition")

    @classmethod
    def of(
        cls,
        *,
        metadata: CapabilityMetadata,
        input_schema: SchemaReference,
        output_schema: SchemaReference,
        model: ModelDescriptor | None = None,
        instructions: Sequence[AgentInstruction] = (),
        tools: Iterable[ToolDescriptor] = (),
        execution: AgentExecution | None = None,
        budget_limits: BudgetLimits | None = None,
    ) -> Self:
        """Make a descriptor from tools in any order; what is left out is empty or absent."""
        return cls(
            metadata=metadata,
            input_schema=input_schema,
            output_schema=output_schema,
            model=model,
            instructions=tuple(instructions),
            tools=tuple(sorted(tools, key=lambda tool: tool.name)),
            execution=execution,
            budget_limits=BudgetLimits() if budget_limits is None else budget_limits,
        )

    def _check_model_free(self) -> None:
        if self.instructions or self.tools or self.execution is not None:
            raise _refused("model_free_mismatch")

    def _check_with(self, model: ModelDescriptor) -> None:
        if self.execution is None or not self.instructions:
            raise _refused("model_free_mismatch")
        if model.metadata.is_retired:
            raise _refused("retired_model")
        if (not self.tools) is not (int(self.execution.max_tool_calls_per_turn) == 0):
            raise _refused("tool_calls_mismatch")
        self._check_output(model, self.execution)

    def _check_output(self, model: ModelDescriptor, execution: AgentExecution) -> None:
        by_tool = execution.structured_output is StructuredOutputMode.TOOL_CALL
        if by_tool and any(tool.name == FINAL_OUTPUT_TOOL for tool in self.tools):
            raise _refused("reserved_tool_name")
        definitions = len(self.tools) + by_tool
        if definitions > MAX_TOOL_DEFINITIONS:
            raise _refused("too_many_tool_definitions")
        if not model.capabilities.can_call(definitions):
            raise _refused("model_lacks_tool_calling")
        if not by_tool and model.capabilities.structured_output is not StructuredOutput.JSON_SCHEMA:
            raise _refused("model_lacks_structured_output")


def _check_tools(tools: tuple[ToolDescriptor, ...]) -> None:
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            raise _refused("duplicate_tool")
        names.add(tool.name)
        if len(names) > MAX_TOOLS:
            raise _refused("too_many_tools")
        if tool.metadata.is_retired:
            raise _refused("retired_tool")
    if [tool.name for tool in tools] != sorted(names):
        raise _refused("unsorted")


def _refused(reason: str) -> InvalidValueError:
    return InvalidValueError(type_name="AgentDescriptor", reason=reason)
