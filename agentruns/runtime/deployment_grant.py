"""What a deployment puts on record about each run that it admits: the agent, and the grant behind it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.authority import EVIDENCE_KIND, SYSTEM_DEFAULT_SOURCE, AgentAdmissionAuthority
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree
from agentruns.domain.capability import CapabilityKind, CapabilityLifecycle, CapabilityMetadata
from agentruns.domain.digests import plain_digest
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.identity import CapabilityIdentity, CapabilityReference, PrincipalIdentity, SchemaReference
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import CapabilityName, TenantId, Version
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.domain.scopes import ScopeSet
from agentruns.runtime.standard_schemas import standard_document

_VERSION: Final = Version("1.0.0")

#: The only policy of a deployment, in the words whose digest every authority carries.
_STATEMENT: Final = "The code that holds the deployment has decided who is admitted and what is granted."
_POLICY: Final = CapabilityIdentity(
    owner=SYSTEM_DEFAULT_SOURCE.owner,
    capability=CapabilityReference(name=CapabilityName("admission.deployment"), version=_VERSION),
)


@cache
def grant_schema() -> SchemaReference:
    """Refer to the document that every grant satisfies."""
    return JsonSchemaRegistryBuilder().add(standard_document("deployment-grant"), _VERSION)


def agent_of(graph: CompiledGraph) -> AgentDescriptor:
    """Describe the agent that is the graph itself, without a model of its own, under the graph's name and version."""
    metadata = CapabilityMetadata(
        identity=graph.identity,
        kind=CapabilityKind.AGENT,
        lifecycle=CapabilityLifecycle.ACTIVE,
        required_scopes=ScopeSet(),
    )
    return AgentDescriptor.of(metadata=metadata, input_schema=graph.input_schema, output_schema=graph.output_schema)


def authority_of(
    graph: CompiledGraph, *, tenant_id: TenantId, principal: PrincipalIdentity, granted_scopes: Iterable[str]
) -> AgentAdmissionAuthority:
    """Record a grant. Equal arguments make equal content, so a retry is recognised."""
    scopes = ScopeSet.taken(granted_scopes)
    capability = graph.identity.capability
    grant: JsonTree = {
        "agent": {"name": str(capability.name), "version": str(capability.version)},
        "granted_scopes": [str(scope) for scope in scopes],
        "graph_digest": str(graph.definition_digest),
        "tenant_id": str(tenant_id),
    }
    return AgentAdmissionAuthority(
        principal=principal,
        granted_scopes=scopes,
        policy=_POLICY,
        policy_digest=plain_digest(_STATEMENT.encode("ascii")),
        evidence=JournalPayload(schema=grant_schema(), kind=EVIDENCE_KIND, data=BoundedJson.of(grant)),
    )
