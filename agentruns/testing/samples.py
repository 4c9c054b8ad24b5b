"""Valid records to start a test from: each function takes keywords for the members that matter to the test."""

from __future__ import annotations

from typing import TypeVar

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.authority import EVIDENCE_KIND, AgentAdmissionAuthority, AgentAdmissionBudgetLayer
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.capability import CapabilityKind, CapabilityLifecycle, CapabilityMetadata
from agentruns.domain.digests import plain_digest
from agentruns.domain.failure import Failure, FailureCategory, FailureDetails, NeverRetry, RetryAdvice
from agentruns.domain.identity import (
    CapabilityIdentity,
    CapabilityReference,
    GraphReference,
    PrincipalIdentity,
    SchemaReference,
)
from agentruns.domain.ids import CheckpointId, EventId, FailureId, InvocationId, RunId, ThreadId, UuidScalar
from agentruns.domain.payload import JournalPayload
from agentruns.domain.request import AgentRequest
from agentruns.domain.scalars import CapabilityName, FailureCode, FailureOrigin, SubjectId, TenantId, Version
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest, GraphState
from agentruns.domain.uris import IssuerId, SchemaId

IdT = TypeVar("IdT", bound=UuidScalar)

TENANT = TenantId("tenant-a")
VERSION = Version("1.0.0")


def sample_id(cls: type[IdT], number: int) -> IdT:
    """Make the same id for the same number: ``0198c0de-0000-7000-8000-`` and the number."""
    return cls(f"0198c0de-0000-7000-8000-{number:012x}")


def run_ids(number: int = 1) -> AgentRunIds:
    """Make the five ids of run ``number``; those of two runs differ."""
    first = 16 * number
    return AgentRunIds(
        run_id=sample_id(RunId, first),
        thread_id=sample_id(ThreadId, first + 1),
        invocation_id=sample_id(InvocationId, first + 2),
        admission_event_id=sample_id(EventId, first + 3),
        initial_checkpoint_id=sample_id(CheckpointId, first + 4),
    )


def principal(subject: str = "somebody") -> PrincipalIdentity:
    """Name somebody of the sample issuer."""
    return PrincipalIdentity(issuer=IssuerId("https://issuer.example/"), subject=SubjectId(subject))


def identity(name: str = "sample", version: str = "1.0.0") -> CapabilityIdentity:
    """Name a capability of the sample owner."""
    capability = CapabilityReference(name=CapabilityName(name), version=Version(version))
    return CapabilityIdentity(owner=principal("owner"), capability=capability)


def schema_document(name: str = "anything", **keywords: JsonTree) -> dict[str, JsonTree]:
    """Write a schema document; without keywords it accepts everything."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://schemas.example/{name}/1.0.0",
        **keywords,
    }


def schema_reference(name: str = "anything", **keywords: JsonTree) -> SchemaReference:
    """Refer to what :func:`schema_document` writes for the same arguments."""
    document = schema_document(name, **keywords)
    return SchemaReference(id=SchemaId(str(document["$id"])), version=VERSION, digest=BoundedJson.of(document).digest)


def graph_reference(name: str = "sample-graph", *, state_schema: SchemaReference | None = None) -> GraphReference:
    """Refer to a graph that nobody has defined."""
    return GraphReference(
        identity=identity(name),
        definition_digest=plain_digest(name.encode("utf-8")),
        state_schema=schema_reference("state") if state_schema is None else state_schema,
    )


def metadata(
    name: str = "sample",
    *,
    kind: CapabilityKind = CapabilityKind.AGENT,
    lifecycle: CapabilityLifecycle = CapabilityLifecycle.ACTIVE,
    required_scopes: ScopeSet | None = None,
    title: str | None = None,
    summary: str | None = None,
) -> CapabilityMetadata:
    """Introduce a capability of the sample owner."""
    return CapabilityMetadata(
        identity=identity(name),
        kind=kind,
        lifecycle=lifecycle,
        required_scopes=ScopeSet() if required_scopes is None else required_scopes,
        title=title,
        summary=summary,
    )


def agent(
    name: str = "sample-agent",
    *,
    input_schema: SchemaReference | None = None,
    output_schema: SchemaReference | None = None,
    required_scopes: ScopeSet | None = None,
    lifecycle: CapabilityLifecycle = CapabilityLifecycle.ACTIVE,
    budget_limits: BudgetLimits | None = None,
) -> AgentDescriptor:
    """Define an agent without a model, whose graph is plain code."""
    return AgentDescriptor.of(
        metadata=metadata(name, lifecycle=lifecycle, required_scopes=required_scopes),
        input_schema=schema_reference("input") if input_schema is None else input_schema,
        output_schema=schema_reference("output") if output_schema is None else output_schema,
        budget_limits=budget_limits,
    )


def agent_request(
    *,
    input: JsonTree = None,  # noqa: A002  # the member's name
    input_schema: SchemaReference | None = None,
    budget_limits: BudgetLimits | None = None,
) -> AgentRequest:
    """Ask the sample agent for something; by default its input is ``null``."""
    schema = schema_reference("input") if input_schema is None else input_schema
    return AgentRequest.of(input_schema=schema, input=input, budget_limits=budget_limits)


def budget_layer(name: str = "sample-policy", *, limits: BudgetLimits) -> AgentAdmissionBudgetLayer:
    """State limits by a policy of the sample owner."""
    digest = plain_digest(name.encode("utf-8"))
    return AgentAdmissionBudgetLayer(source=identity(name), decision_digest=digest, limits=limits)


def authority(
    *,
    granted_scopes: ScopeSet | None = None,
    evidence: JsonTree = None,
    evidence_schema: SchemaReference | None = None,
) -> AgentAdmissionAuthority:
    """Record that somebody may do whatever ``granted_scopes`` say; by default nothing in particular."""
    return AgentAdmissionAuthority(
        principal=principal(),
        granted_scopes=ScopeSet() if granted_scopes is None else granted_scopes,
        policy=identity("admission-policy"),
        policy_digest=plain_digest(b"admission-policy"),
        evidence=JournalPayload(
            schema=schema_reference("evidence") if evidence_schema is None else evidence_schema,
            kind=EVIDENCE_KIND,
            data=BoundedJson.of(evidence),
        ),
    )


def graph_state(tree: JsonTree = None, *, schema: SchemaReference | None = None) -> GraphState:
    """Hold a state of the sample graph; by default ``null``."""
    return GraphState.of(schema_reference("state") if schema is None else schema, tree)


def admission_request(
    number: int = 1,
    *,
    tenant_id: TenantId = TENANT,
    ids: AgentRunIds | None = None,
    descriptor: AgentDescriptor | None = None,
    request: AgentRequest | None = None,
    budget_layers: tuple[AgentAdmissionBudgetLayer, ...] | None = None,
    graph: GraphReference | None = None,
    granted: AgentAdmissionAuthority | None = None,
    initial_state: GraphState | None = None,
) -> DurableAgentAdmissionRequest:
    """Put a submission together, with the ids of run ``number`` and everything else as the other samples have it."""
    layers = (AgentAdmissionBudgetLayer.system_default(),) if budget_layers is None else budget_layers
    return DurableAgentAdmissionRequest.new(
        tenant_id=tenant_id,
        ids=run_ids(number) if ids is None else ids,
        agent=agent() if descriptor is None else descriptor,
        request=agent_request() if request is None else request,
        budget_layers=layers,
        graph=graph_reference() if graph is None else graph,
        authority=authority() if granted is None else granted,
        initial_state=graph_state() if initial_state is None else initial_state,
    )


def admission_intent(number: int = 1) -> AgentAdmissionIntent:
    """Give the intent of the sample submission."""
    return admission_request(number).intent


def failure(
    *,
    number: int = 1,
    category: FailureCategory = FailureCategory.INTERNAL,
    code: str = "sample.failed",
    message: str = "it did not work",
    retry_advice: RetryAdvice | None = None,
    details: FailureDetails | None = None,
    caused_by_event_id: EventId | None = None,
) -> Failure:
    """Declare that something failed; by default it is not to be repeated."""
    return Failure(
        id=sample_id(FailureId, number),
        category=category,
        code=FailureCode(code),
        origin=FailureOrigin("sample"),
        message=message,
        retry_advice=NeverRetry() if retry_advice is None else retry_advice,
        details=details,
        caused_by_event_id=caused_by_event_id,
    )


def cancellation(*, number: int = 1, message: str = "nobody needs it any more") -> Failure:
    """Declare that somebody asks for cancellation."""
    return failure(number=number, category=FailureCategory.CANCELLED, code="sample.cancelled", message=message)
