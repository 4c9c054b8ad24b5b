"""What a tool does, what it may be given, and what repeating it means."""

from __future__ import annotations

import re
from enum import Enum, unique

from attrs import field, frozen

from agentruns.domain.capability import CapabilityKind, CapabilityMetadata
from agentruns.domain.identity import SchemaReference
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_bound, check_members
from agentruns.domain.numbers import ByteCount, DurationMillis, ExecutionCount
from agentruns.domain.texts import check_text
from agentruns.errors import InvalidValueError

MAX_DESCRIPTION_BYTES = 4_096
MAX_TIMEOUT_MILLIS = 24 * 60 * 60 * 1_000
MAX_CONCURRENCY = 1_024
MAX_INLINE_BYTES = 2 * 1024 * 1024
MAX_ARTIFACTS = 64

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@unique
class ToolRisk(Enum):
    """Say what a call may change outside. Declared, never guessed from a name or a method."""

    READ_ONLY = "read_only"
    IDEMPOTENT_WRITE = "idempotent_write"
    NON_IDEMPOTENT_WRITE = "non_idempotent_write"

    @property
    def is_write(self) -> bool:
        """A call may change something outside."""
        return self is not ToolRisk.READ_ONLY


@frozen(kw_only=True)
class ToolIdempotency:
    """State what helps when it is not known whether a call happened.

    Attributes:
        requires_key: every attempt of a call gets the same key. Only for ``idempotent_write``.
        supports_status_query: the tool can be asked what became of an attempt. Only for writes.
    """

    requires_key: bool
    supports_status_query: bool

    def __attrs_post_init__(self) -> None:
        check_members(self)


@frozen(kw_only=True)
class ToolLimits:
    """Bound one call of a tool; a call's own limits may only narrow these, member by member.

    Attributes:
        timeout: 1 ms..24 h.
        max_concurrency: 1..1 024 calls at once.
        max_input_bytes: 1..2 MiB.
        max_inline_result_bytes: 1..2 MiB.
        max_artifacts: 0..64.
        max_total_artifact_bytes: 0 exactly when there are no artifacts.
    """

    timeout: DurationMillis
    max_concurrency: ExecutionCount
    max_input_bytes: ByteCount
    max_inline_result_bytes: ByteCount
    max_artifacts: ExecutionCount
    max_total_artifact_bytes: ByteCount

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "timeout", 1, MAX_TIMEOUT_MILLIS)
        check_bound(self, "max_concurrency", 1, MAX_CONCURRENCY)
        check_bound(self, "max_input_bytes", 1, MAX_INLINE_BYTES)
        check_bound(self, "max_inline_result_bytes", 1, MAX_INLINE_BYTES)
        check_bound(self, "max_artifacts", 0, MAX_ARTIFACTS)
        if (int(self.max_artifacts) == 0) is not (int(self.max_total_artifact_bytes) == 0):
            raise InvalidValueError(type_name="ToolLimits", reason="artifact_limits_mismatch")


@frozen(kw_only=True)
class ToolDescriptor(KeptBytes):
    """Define a tool. One that becomes idempotent, or stops being so, is another version.

    Attributes:
        metadata: of kind ``tool``.
        name: what the model sees; 1..64 of ``[A-Za-z0-9_-]``.
        description: 1..4 096 bytes, for the model.
        input_schema: of the arguments.
        output_schema: of the result.
        risk: which external effects a result may report, and when a retry is safe.
        idempotency: what helps when the outcome of a call is unknown.
        limits: bounds of one call.
    """

    metadata: CapabilityMetadata
    name: str
    description: str = field(repr=False)
    input_schema: SchemaReference
    output_schema: SchemaReference
    risk: ToolRisk
    idempotency: ToolIdempotency
    limits: ToolLimits

    def __attrs_post_init__(self) -> None:
        check_members(self)
        self.metadata.check_kind(self, CapabilityKind.TOOL)
        if not _NAME.fullmatch(self.name):
            raise InvalidValueError(type_name="ToolDescriptor", reason="invalid_name")
        check_text("ToolDescriptor", self.description, shortest=1, longest=MAX_DESCRIPTION_BYTES)
        if self.idempotency.requires_key and self.risk is not ToolRisk.IDEMPOTENT_WRITE:
            raise InvalidValueError(type_name="ToolDescriptor", reason="key_not_allowed")
        if self.idempotency.supports_status_query and not self.risk.is_write:
            raise InvalidValueError(type_name="ToolDescriptor", reason="status_query_not_allowed")
