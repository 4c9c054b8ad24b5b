"""What a caller submits and keeps, and the digests by which a retry is recognised."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, unique
from typing import ClassVar, Self

from attrs import field, frozen

from agentruns.domain.admission import MAX_ADMISSION_BYTES, AgentAdmissionIntent
from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.authority import AgentAdmissionAuthority, AgentAdmissionBudgetLayer
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.domain.identity import GraphReference, SchemaReference
from agentruns.domain.ids import CheckpointId, EventId, RunId
from agentruns.domain.json_limits import MIB, JsonLimits
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.request import AgentRequest
from agentruns.domain.result import AgentResultProvenance
from agentruns.domain.run_ids import AgentRunIds
from agentruns.domain.scalars import TenantId
from agentruns.domain.splice import array, quoted, spliced_object
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import InvalidValueError

__all__ = [
    "AgentRunIds",
    "DurableAgentAdmissionRequest",
    "GraphState",
    "MutationOutcome",
    "key_digest",
    "keyless_digest",
    "submission_digest",
]


@unique
class MutationOutcome(Enum):
    """Say whether a call changed anything: only ``COMMITTED`` permits an effect."""

    COMMITTED = "committed"
    IDEMPOTENT = "idempotent"


@frozen(kw_only=True)
class GraphState(KeptBytes):
    """Hold a state of a graph.

    Attributes:
        schema: the graph's state schema.
        data: JSON within the maximum limits.
    """

    schema: SchemaReference
    data: BoundedJson = field(repr=False, metadata={"limits": JsonLimits.MAXIMUM})

    def __attrs_post_init__(self) -> None:
        check_members(self)

    @classmethod
    def of(cls, schema: SchemaReference, tree: JsonTree) -> Self:
        """Take a state from a tree of plain JSON; its bytes are taken at once.

        Raises:
            InvalidJsonError: the tree is no JSON within the maximum limits.
        """
        return cls(schema=schema, data=BoundedJson.of(tree, JsonLimits.MAXIMUM))

    @property
    def state_digest(self) -> Digest:
        """Digest of the data as the body of a checkpoint."""
        return digest_body(DigestPurpose.STATE, self.data.data)


@frozen(kw_only=True)
class DurableAgentAdmissionRequest:
    """Hold a whole submission. A wire record: a caller can store it beside its own work and send it again.

    Two requests are the same when their submission digests are equal: everything counts but the five ids.

    Attributes:
        intent: what the caller decides.
        admission_event_id: of event 1.
        initial_checkpoint_id: of checkpoint 0.
        initial_state: under the graph's state schema.
    """

    max_wire_bytes: ClassVar[int] = MAX_ADMISSION_BYTES + 3 * MIB

    intent: AgentAdmissionIntent
    admission_event_id: EventId
    initial_checkpoint_id: CheckpointId
    initial_state: GraphState

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.initial_state.schema != self.intent.graph.state_schema:
            raise InvalidValueError(type_name="DurableAgentAdmissionRequest", reason="initial_state_schema_mismatch")

    @classmethod
    def new(
        cls,
        *,
        tenant_id: TenantId,
        ids: AgentRunIds,
        agent: AgentDescriptor,
        request: AgentRequest,
        budget_layers: Iterable[AgentAdmissionBudgetLayer],
        graph: GraphReference,
        authority: AgentAdmissionAuthority,
        initial_state: GraphState,
    ) -> Self:
        """Put a submission together. Keep it, or make equal arguments again, for every retry.

        Raises:
            InvalidValueError: the first rule that the intent breaks, or ``initial_state_schema_mismatch``.
        """
        intent = AgentAdmissionIntent.of(
            provenance=AgentResultProvenance.of(tenant_id, ids, agent),
            descriptor=agent,
            request=request,
            budget_layers=budget_layers,
            graph=graph,
            authority=authority,
        )
        return cls(
            intent=intent,
            admission_event_id=ids.admission_event_id,
            initial_checkpoint_id=ids.initial_checkpoint_id,
            initial_state=initial_state,
        )

    @property
    def tenant_id(self) -> TenantId:
        """The tenant of the run."""
        return self.intent.provenance.tenant_id

    @property
    def run_id(self) -> RunId:
        """The candidate for the run's id."""
        return self.intent.provenance.run_id

    @property
    def ids(self) -> AgentRunIds:
        """The five candidates."""
        return AgentRunIds(
            run_id=self.intent.provenance.run_id,
            thread_id=self.intent.provenance.thread_id,
            invocation_id=self.intent.provenance.invocation_id,
            admission_event_id=self.admission_event_id,
            initial_checkpoint_id=self.initial_checkpoint_id,
        )

    @property
    def admission_digest(self) -> Digest:
        """Digest of what is admitted, ids included."""
        return self.intent.digest

    @property
    def submission_digest(self) -> Digest:
        """Digest of the content: equal for every retry, whatever ids it brings."""
        return submission_digest(self.intent, self.initial_state)


def submission_digest(intent: AgentAdmissionIntent, initial_state: GraphState) -> Digest:
    """Hash the content of a submission, from the bytes that its parts keep. No id of the run is part of it."""
    members = {
        "tenant_id": quoted(intent.provenance.tenant_id.text),
        "descriptor": intent.descriptor.canonical,
        "request": intent.request.canonical,
        "budget_layers": array([layer.canonical for layer in intent.budget_layers]),
        "budget": intent.budget.canonical,
        "graph": intent.graph.canonical,
        "authority": intent.authority.canonical,
        "initial_state": initial_state.canonical,
    }
    return digest_body(DigestPurpose.SUBMISSION, spliced_object(members))


def key_digest(tenant_id: TenantId, key: AgentSubmissionKey) -> Digest:
    """Hash a key within its tenant: what is stored instead of the key."""
    return digest_body(DigestPurpose.SUBMISSION_KEY, tenant_id.text.encode("ascii"), b"\0", key.text.encode("ascii"))


def keyless_digest(tenant_id: TenantId, run_id: RunId) -> Digest:
    """Make what stands in the key's column of an admission without a key; no key has this digest."""
    members = {"run_id": quoted(run_id.text), "tenant_id": quoted(tenant_id.text)}
    return digest_body(DigestPurpose.KEYLESS_ADMISSION, spliced_object(members))
