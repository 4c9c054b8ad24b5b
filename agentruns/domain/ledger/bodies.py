"""The bytes that events name by their digest, and the one way to believe them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from attrs import field, frozen

from agentruns.domain.admission import MAX_ADMISSION_BYTES, AgentAdmissionIntent
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.domain.graph.results import MAXIMUM_FAILURE_BYTES, MAXIMUM_RESULT_BYTES, NodeFailure, NodeResult
from agentruns.domain.ids import CheckpointId
from agentruns.domain.json_limits import MIB
from agentruns.domain.kept import KeptBytes
from agentruns.domain.ledger.outcomes import MAX_OUTCOME_BYTES, MAX_REQUEST_BYTES, CancellationRequest, StoredOutcome
from agentruns.domain.waits import WaitResolution
from agentruns.domain.wire import decode

_R = TypeVar("_R")

MAX_STATE_BYTES: Final = 2 * MIB
MAX_WAIT_BYTES: Final = 4 * MIB


@frozen(kw_only=True)
class BodyRow:
    """Hold the row of one body.

    Attributes:
        data: the bytes as they lie in their column; for a checkpoint, its state's.
        checkpoint_id: of a checkpoint's row.
        record: what this process made the bytes from, or read from these very bytes. Its digest is compared all the
            same.
    """

    data: bytes = field(repr=False)
    checkpoint_id: CheckpointId | None = None
    record: KeptBytes | BoundedJson | None = field(default=None, eq=False, repr=False)

    @classmethod
    def of(cls, record: KeptBytes) -> Self:
        """Take a record of this process."""
        return cls(data=record.canonical, record=record)

    @classmethod
    def of_state(cls, checkpoint_id: CheckpointId, state: BoundedJson) -> Self:
        """Take a checkpoint's state."""
        return cls(data=state.data, checkpoint_id=checkpoint_id, record=state)


#: Rows by the digest that an event names. Rows that no event names are passed over, so one mapping may serve many.
Bodies: TypeAlias = Mapping[Digest, BodyRow]

#: For events that name no body.
NO_BODIES: Final[Bodies] = {}


@frozen
class BodyKind(Generic[_R]):
    """Say what a body is for, which record it holds and how large it may be."""

    purpose: DigestPurpose
    shape: Any
    max_bytes: int

    def verifies(self, digest: Digest, row: BodyRow) -> bool:
        """Tell whether the bytes are those that the digest names."""
        return len(row.data) <= self.max_bytes and digest_body(self.purpose, row.data) == digest

    def read(self, row: BodyRow) -> _R:
        """Read a body whose digest was verified.

        Raises:
            InvalidValueError: the bytes are no canonical record of this kind.
        """
        record: _R = decode(row.data, self.shape)
        return record

    def made_in(self, row: BodyRow, digest: Digest) -> _R | None:
        """Give the record that stands for the very bytes of the row, if they have this digest."""
        record: Any = row.record
        if isinstance(record, KeptBytes) and record.canonical is row.data and record.digest == digest:
            return record if isinstance(record, self.shape) else None
        return None


ADMISSION: Final = BodyKind[AgentAdmissionIntent](DigestPurpose.ADMISSION, AgentAdmissionIntent, MAX_ADMISSION_BYTES)
NODE_RESULT: Final = BodyKind[NodeResult](DigestPurpose.NODE_RESULT, NodeResult, MAXIMUM_RESULT_BYTES)
NODE_FAILURE: Final = BodyKind[NodeFailure](DigestPurpose.NODE_FAILURE, NodeFailure, MAXIMUM_FAILURE_BYTES)
RESOLUTION: Final = BodyKind[WaitResolution](DigestPurpose.WAIT_RESOLUTION, WaitResolution, MAX_WAIT_BYTES)
CANCELLATION: Final = BodyKind[CancellationRequest](
    DigestPurpose.CANCELLATION_REQUEST, CancellationRequest, MAX_REQUEST_BYTES
)
OUTCOME: Final = BodyKind[StoredOutcome](DigestPurpose.OUTCOME, StoredOutcome, MAX_OUTCOME_BYTES)
