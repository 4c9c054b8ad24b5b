"""Valid models, tools and agents that use them, to start a test from."""

from __future__ import annotations

from collections.abc import Sequence

from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.capability import CapabilityKind, CapabilityLifecycle
from agentruns.domain.execution import AgentExecution, SequentialTools, StructuredOutputMode, ToolConcurrency
from agentruns.domain.identity import Modality
from agentruns.domain.instructions import AgentInstruction, InstructionText
from agentruns.domain.model import ModelCapabilities, ModelDescriptor, ModelLimits, StructuredOutput
from agentruns.domain.numbers import ByteCount, DurationMillis, ExecutionCount, TokenCount
from agentruns.domain.tool import ToolDescriptor, ToolIdempotency, ToolLimits, ToolRisk
from agentruns.testing.samples import identity, metadata, schema_reference


def model_capabilities(
    *,
    structured_output: StructuredOutput = StructuredOutput.JSON_SCHEMA,
    tool_definitions: int = 128,
    tool_calls: int = 16,
) -> ModelCapabilities:
    """State what a model of text can do; it calls tools when it may have any."""
    return ModelCapabilities(
        streaming=False,
        tool_calling=tool_definitions + tool_calls > 0,
        structured_output=structured_output,
        input_modalities=(Modality.TEXT,),
        output_modalities=(Modality.TEXT,),
        max_tool_definitions=ExecutionCount(tool_definitions),
        max_tool_calls_per_response=ExecutionCount(tool_calls),
    )


def model_limits() -> ModelLimits:
    """Bound an exchange to sizes that no test reaches by accident."""
    return ModelLimits(
        max_input_tokens=TokenCount(100_000),
        max_output_tokens=TokenCount(10_000),
        max_request_bytes=ByteCount(1_000_000),
        max_response_bytes=ByteCount(1_000_000),
    )


def model(
    name: str = "sample-model",
    *,
    capabilities: ModelCapabilities | None = None,
    lifecycle: CapabilityLifecycle = CapabilityLifecycle.ACTIVE,
) -> ModelDescriptor:
    """Define a model of the sample owner."""
    return ModelDescriptor(
        metadata=metadata(name, kind=CapabilityKind.MODEL, lifecycle=lifecycle),
        capabilities=model_capabilities() if capabilities is None else capabilities,
        limits=model_limits(),
    )


def tool_limits() -> ToolLimits:
    """Bound a call to a second, sizes that no test reaches by accident, and no artifacts."""
    return ToolLimits(
        timeout=DurationMillis(1_000),
        max_concurrency=ExecutionCount(4),
        max_input_bytes=ByteCount(65_536),
        max_inline_result_bytes=ByteCount(65_536),
        max_artifacts=ExecutionCount(0),
        max_total_artifact_bytes=ByteCount(0),
    )


def tool(
    name: str = "sample_tool",
    *,
    risk: ToolRisk = ToolRisk.READ_ONLY,
    requires_key: bool = False,
    supports_status_query: bool = False,
    limits: ToolLimits | None = None,
    lifecycle: CapabilityLifecycle = CapabilityLifecycle.ACTIVE,
) -> ToolDescriptor:
    """Define a tool of the sample owner; its capability is called ``tool-`` and the name in lower case."""
    return ToolDescriptor(
        metadata=metadata(f"tool-{name.lower()}", kind=CapabilityKind.TOOL, lifecycle=lifecycle),
        name=name,
        description="Does something for a test.",
        input_schema=schema_reference("tool-input"),
        output_schema=schema_reference("tool-output"),
        risk=risk,
        idempotency=ToolIdempotency(requires_key=requires_key, supports_status_query=supports_status_query),
        limits=tool_limits() if limits is None else limits,
    )


def instruction(name: str = "sample-instruction", text: str = "Be brief.") -> AgentInstruction:
    """Give a model a line of text."""
    return AgentInstruction(identity=identity(name), content=InstructionText(text=text))


def execution(
    *,
    structured_output: StructuredOutputMode = StructuredOutputMode.MODEL_NATIVE,
    model_turns: int = 8,
    repair_turns: int = 0,
    tool_calls_per_turn: int = 0,
    tool_concurrency: ToolConcurrency | None = None,
) -> AgentExecution:
    """Bound the loop of a model and its tools, one tool after the other."""
    return AgentExecution(
        structured_output=structured_output,
        max_model_turns=ExecutionCount(model_turns),
        max_output_repair_turns=ExecutionCount(repair_turns),
        max_tool_calls_per_turn=ExecutionCount(tool_calls_per_turn),
        tool_concurrency=SequentialTools() if tool_concurrency is None else tool_concurrency,
    )


def model_agent(
    name: str = "sample-model-agent",
    *,
    uses: ModelDescriptor | None = None,
    instructions: Sequence[AgentInstruction] | None = None,
    tools: Sequence[ToolDescriptor] = (),
    loop: AgentExecution | None = None,
    budget_limits: BudgetLimits | None = None,
) -> AgentDescriptor:
    """Define an agent with a model; its loop permits calls exactly when there are tools."""
    return AgentDescriptor.of(
        metadata=metadata(name),
        input_schema=schema_reference("input"),
        output_schema=schema_reference("output"),
        model=model() if uses is None else uses,
        instructions=[instruction()] if instructions is None else instructions,
        tools=tools,
        execution=execution(tool_calls_per_turn=4 if tools else 0) if loop is None else loop,
        budget_limits=budget_limits,
    )
