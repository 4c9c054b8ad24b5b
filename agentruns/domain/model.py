"""What a model can do, without naming who provides it."""

from __future__ import annotations

from enum import Enum, unique

from attrs import frozen

from agentruns.domain.capability import CapabilityKind, CapabilityMetadata
from agentruns.domain.identity import Modality
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_bound, check_members
from agentruns.domain.numbers import ByteCount, ExecutionCount, TokenCount
from agentruns.errors import InvalidValueError

_MIB = 1024 * 1024

MAX_TOOL_DEFINITIONS = 128
MAX_TOOL_CALLS = 1_024
MAX_REQUEST_BYTES = 128 * _MIB
MAX_RESPONSE_BYTES = 16 * _MIB
_MAX_COUNT = 2**64 - 1


@unique
class StructuredOutput(Enum):
    """Say what a model guarantees about the form of its output; each includes those before it."""

    NONE = "none"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


@frozen(kw_only=True)
class ModelCapabilities:
    """State what a model can do.

    Attributes:
        streaming: answers can arrive in parts.
        tool_calling: it can ask for tools; exactly otherwise both maxima are 0.
        structured_output: the strongest form of output that it guarantees.
        input_modalities: what it reads, text included; sorted.
        output_modalities: what it writes, text included; sorted.
        max_tool_definitions: 0..128 in one request.
        max_tool_calls_per_response: 0..1 024.
    """

    streaming: bool
    tool_calling: bool
    structured_output: StructuredOutput
    input_modalities: tuple[Modality, ...]
    output_modalities: tuple[Modality, ...]
    max_tool_definitions: ExecutionCount
    max_tool_calls_per_response: ExecutionCount

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "max_tool_definitions", 0, MAX_TOOL_DEFINITIONS)
        check_bound(self, "max_tool_calls_per_response", 0, MAX_TOOL_CALLS)
        if self.tool_calling is (int(self.max_tool_definitions) == int(self.max_tool_calls_per_response) == 0):
            raise InvalidValueError(type_name="ModelCapabilities", reason="tool_calling_mismatch")
        _check_modalities("input_modalities", self.input_modalities)
        _check_modalities("output_modalities", self.output_modalities)

    def can_call(self, definitions: int) -> bool:
        """Tell whether a request may carry that many definitions of tools and get a call back."""
        if definitions == 0:
            return True
        return definitions <= int(self.max_tool_definitions) and int(self.max_tool_calls_per_response) > 0


@frozen(kw_only=True)
class ModelLimits:
    """Bound one exchange with a model.

    Attributes:
        max_input_tokens: at least 1.
        max_output_tokens: at least 1.
        max_request_bytes: 1..128 MiB.
        max_response_bytes: 1..16 MiB.
    """

    max_input_tokens: TokenCount
    max_output_tokens: TokenCount
    max_request_bytes: ByteCount
    max_response_bytes: ByteCount

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "max_input_tokens", 1, _MAX_COUNT)
        check_bound(self, "max_output_tokens", 1, _MAX_COUNT)
        check_bound(self, "max_request_bytes", 1, MAX_REQUEST_BYTES)
        check_bound(self, "max_response_bytes", 1, MAX_RESPONSE_BYTES)


@frozen(kw_only=True)
class ModelDescriptor(KeptBytes):
    """Define a model. Names of providers, aliases, keys and client objects are no part of it."""

    metadata: CapabilityMetadata
    capabilities: ModelCapabilities
    limits: ModelLimits

    def __attrs_post_init__(self) -> None:
        check_members(self)
        self.metadata.check_kind(self, CapabilityKind.MODEL)


def _check_modalities(name: str, modalities: tuple[Modality, ...]) -> None:
    values = [each.value for each in modalities]
    if len(set(values)) < len(values):
        raise InvalidValueError(type_name="ModelCapabilities", reason="duplicate", path=(name,))
    if values != sorted(values):
        raise InvalidValueError(type_name="ModelCapabilities", reason="unsorted", path=(name,))
    if Modality.TEXT not in modalities:
        raise InvalidValueError(type_name="ModelCapabilities", reason="missing_text", path=(name,))
