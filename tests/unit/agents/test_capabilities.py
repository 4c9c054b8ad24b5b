"""Models and tools: what they may say about themselves."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.capability import CapabilityKind, CapabilityLifecycle, CapabilityMetadata
from agentruns.domain.identity import Modality
from agentruns.domain.model import ModelCapabilities, ModelDescriptor, ModelLimits
from agentruns.domain.numbers import ByteCount, DurationMillis, ExecutionCount, TokenCount
from agentruns.domain.tool import ToolDescriptor, ToolLimits, ToolRisk
from agentruns.domain.wire import decode, encode, from_wire, to_wire
from agentruns.errors import InvalidValueError
from agentruns.testing.model_samples import model, model_capabilities, model_limits, tool, tool_limits
from agentruns.testing.samples import metadata

MIB = 1024 * 1024


def refusal(record: Any, **members: Any) -> tuple[str, str, tuple[str | int, ...]]:
    """Change members of a valid record, and say how it is refused."""
    with pytest.raises(InvalidValueError) as caught:
        evolve(record, **members)
    return caught.value.type_name, caught.value.reason, caught.value.path


@pytest.mark.parametrize("member", ["title", "summary"])
def test_title_and_summary_are_public_lines(member: str) -> None:
    longest = {"title": 128, "summary": 4_096}[member]
    fitting: dict[str, Any] = {member: "x" * longest}
    assert getattr(metadata(**fitting), member) == "x" * longest
    assert refusal(metadata(), **{member: "x" * (longest + 1)}) == ("CapabilityMetadata", "too_long", ())
    assert refusal(metadata(), **{member: ""}) == ("CapabilityMetadata", "too_short", ())
    assert refusal(metadata(), **{member: " x"}) == ("CapabilityMetadata", "invalid_format", ())


def test_title_and_summary_are_left_out_when_absent() -> None:
    tree = to_wire(metadata())
    assert isinstance(tree, dict)
    assert set(tree) == {"identity", "kind", "lifecycle", "required_scopes"}
    assert from_wire(tree, CapabilityMetadata) == metadata()


@pytest.mark.parametrize("lifecycle", CapabilityLifecycle)
def test_only_a_retired_capability_is_retired(lifecycle: CapabilityLifecycle) -> None:
    assert metadata(lifecycle=lifecycle).is_retired is (lifecycle.value == "retired")


def test_each_descriptor_has_its_own_kind() -> None:
    assert refusal(model(), metadata=metadata(kind=CapabilityKind.TOOL)) == ("ModelDescriptor", "wrong_kind", ())
    assert refusal(tool(), metadata=metadata(kind=CapabilityKind.AGENT)) == ("ToolDescriptor", "wrong_kind", ())


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("definitions", "calls"), [(1, 0), (0, 1), (1, 1)])
def test_a_model_that_may_have_tools_calls_them(definitions: int, calls: int) -> None:
    able = model_capabilities(tool_definitions=definitions, tool_calls=calls)
    assert able.tool_calling
    assert refusal(able, tool_calling=False) == ("ModelCapabilities", "tool_calling_mismatch", ())
    assert able.can_call(0)
    assert able.can_call(1) is (definitions == calls == 1)
    assert not able.can_call(2)


def test_a_model_without_tools_calls_none() -> None:
    unable = model_capabilities(tool_definitions=0, tool_calls=0)
    assert not unable.tool_calling
    assert refusal(unable, tool_calling=True) == ("ModelCapabilities", "tool_calling_mismatch", ())
    assert unable.can_call(0)
    assert not unable.can_call(1)


@pytest.mark.parametrize(("member", "highest"), [("max_tool_definitions", 128), ("max_tool_calls_per_response", 1_024)])
def test_what_a_model_may_be_given_is_bounded(member: str, highest: int) -> None:
    fitting: dict[str, Any] = {member: ExecutionCount(highest)}
    assert getattr(evolve(model_capabilities(), **fitting), member) == ExecutionCount(highest)
    beyond = {member: ExecutionCount(highest + 1)}
    assert refusal(model_capabilities(), **beyond) == ("ModelCapabilities", "out_of_range", (member,))


@pytest.mark.parametrize("member", ["input_modalities", "output_modalities"])
def test_modalities_are_a_sorted_set_with_text(member: str) -> None:
    image, text = Modality.IMAGE, Modality.TEXT
    fitting: dict[str, Any] = {member: (image, text)}
    assert getattr(evolve(model_capabilities(), **fitting), member) == (image, text)
    for modalities, reason in (
        ((), "missing_text"),
        ((image,), "missing_text"),
        ((text, image), "unsorted"),
        ((text, text), "duplicate"),
    ):
        assert refusal(model_capabilities(), **{member: modalities})[:2] == ("ModelCapabilities", reason)


@pytest.mark.parametrize(
    ("member", "unit", "highest"),
    [
        ("max_input_tokens", TokenCount, None),
        ("max_output_tokens", TokenCount, None),
        ("max_request_bytes", ByteCount, 128 * MIB),
        ("max_response_bytes", ByteCount, 16 * MIB),
    ],
)
def test_an_exchange_is_bounded(member: str, unit: type[TokenCount | ByteCount], highest: int | None) -> None:
    assert refusal(model_limits(), **{member: unit(0)}) == ("ModelLimits", "out_of_range", (member,))
    fitting: dict[str, Any] = {member: unit(2**64 - 1 if highest is None else highest)}
    assert isinstance(evolve(model_limits(), **fitting), ModelLimits)
    if highest is not None:
        assert refusal(model_limits(), **{member: unit(highest + 1)}) == ("ModelLimits", "out_of_range", (member,))


def test_a_model_is_one_record_on_the_wire() -> None:
    assert to_wire(model_capabilities()) == {
        "streaming": False,
        "tool_calling": True,
        "structured_output": "json_schema",
        "input_modalities": ["text"],
        "output_modalities": ["text"],
        "max_tool_definitions": "128",
        "max_tool_calls_per_response": "16",
    }
    assert from_wire(to_wire(model_capabilities()), ModelCapabilities) == model_capabilities()
    assert decode(encode(model()), ModelDescriptor) == model()


# --- tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 64])
def test_a_tools_name_is_what_models_accept(name: str) -> None:
    assert evolve(tool(), name=name).name == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a.b", "é", "a\n"])
def test_no_other_name_is_accepted(name: str) -> None:
    assert refusal(tool(), name=name) == ("ToolDescriptor", "invalid_name", ())


def test_a_description_is_bounded_in_bytes() -> None:
    assert evolve(tool(), description="é" * 2_048).description == "é" * 2_048
    assert refusal(tool(), description="é" * 2_048 + "x") == ("ToolDescriptor", "too_long", ())
    assert refusal(tool(), description="") == ("ToolDescriptor", "too_short", ())


@pytest.mark.parametrize("risk", ToolRisk)
def test_a_key_is_only_for_idempotent_writes(risk: ToolRisk) -> None:
    keyed = {"risk": risk, "idempotency": evolve(tool().idempotency, requires_key=True)}
    if risk is ToolRisk.IDEMPOTENT_WRITE:
        assert evolve(tool(), **keyed).idempotency.requires_key  # type: ignore[arg-type]  # members of the record
    else:
        assert refusal(tool(), **keyed) == ("ToolDescriptor", "key_not_allowed", ())


@pytest.mark.parametrize("risk", ToolRisk)
def test_a_status_query_is_only_for_writes(risk: ToolRisk) -> None:
    asked = {"risk": risk, "idempotency": evolve(tool().idempotency, supports_status_query=True)}
    assert risk.is_write is (risk is not ToolRisk.READ_ONLY)
    if risk.is_write:
        assert evolve(tool(), **asked).idempotency.supports_status_query  # type: ignore[arg-type]  # members of the record
    else:
        assert refusal(tool(), **asked) == ("ToolDescriptor", "status_query_not_allowed", ())


@pytest.mark.parametrize(
    ("member", "unit", "lowest", "highest"),
    [
        ("timeout", DurationMillis, 1, 24 * 60 * 60 * 1_000),
        ("max_concurrency", ExecutionCount, 1, 1_024),
        ("max_input_bytes", ByteCount, 1, 2 * MIB),
        ("max_inline_result_bytes", ByteCount, 1, 2 * MIB),
    ],
)
def test_a_call_is_bounded(
    member: str, unit: type[DurationMillis | ExecutionCount | ByteCount], lowest: int, highest: int
) -> None:
    for value in (lowest, highest):
        fitting: dict[str, Any] = {member: unit(value)}
        assert isinstance(evolve(tool_limits(), **fitting), ToolLimits)
    for value in (lowest - 1, highest + 1):
        assert refusal(tool_limits(), **{member: unit(value)}) == ("ToolLimits", "out_of_range", (member,))


@pytest.mark.parametrize(("count", "size", "fits"), [(0, 0, True), (64, 1, True), (0, 1, False), (1, 0, False)])
def test_no_artifacts_have_no_bytes(count: int, size: int, fits: bool) -> None:  # noqa: FBT001  # a parameter
    members = {"max_artifacts": ExecutionCount(count), "max_total_artifact_bytes": ByteCount(size)}
    if fits:
        assert evolve(tool_limits(), **members).max_artifacts == ExecutionCount(count)  # type: ignore[arg-type]  # members of the record
    else:
        assert refusal(tool_limits(), **members) == ("ToolLimits", "artifact_limits_mismatch", ())


def test_artifacts_are_at_most_sixty_four() -> None:
    members = {"max_artifacts": ExecutionCount(65), "max_total_artifact_bytes": ByteCount(1)}
    assert refusal(tool_limits(), **members) == ("ToolLimits", "out_of_range", ("max_artifacts",))


def test_a_tool_is_one_record_on_the_wire() -> None:
    assert decode(encode(tool()), ToolDescriptor) == tool()
    assert "Does something" not in repr(tool())
