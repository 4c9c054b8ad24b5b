"""The value of a run that succeeded."""

from __future__ import annotations

from attrs import field, frozen

from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.artifacts import AgentArtifacts, check_artifacts, total_size
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget import ResolvedBudget
from agentruns.domain.identity import CapabilityIdentity, SchemaReference
from agentruns.domain.ids import InvocationId, RunId, ThreadId
from agentruns.domain.json_bounds import check_json
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.members import check_members
from agentruns.domain.request import AgentRequest
from agentruns.domain.run_ids import AgentRunIds
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import InvalidValueError


@frozen(kw_only=True)
class AgentResultProvenance:
    """Say which run of which agent something belongs to."""

    tenant_id: TenantId
    run_id: RunId
    thread_id: ThreadId
    invocation_id: InvocationId
    agent: CapabilityIdentity

    def __attrs_post_init__(self) -> None:
        check_members(self)

    @classmethod
    def of(cls, tenant_id: TenantId, ids: AgentRunIds, descriptor: AgentDescriptor) -> AgentResultProvenance:
        """Put the names of a run together."""
        return cls(
            tenant_id=tenant_id,
            run_id=ids.run_id,
            thread_id=ids.thread_id,
            invocation_id=ids.invocation_id,
            agent=descriptor.metadata.identity,
        )

    def validate_for(self, descriptor: AgentDescriptor) -> None:
        """Check that the agent is the descriptor's.

        Raises:
            InvalidValueError: ``provenance_mismatch``.
        """
        if self.agent != descriptor.metadata.identity:
            raise InvalidValueError(type_name="AgentResultProvenance", reason="provenance_mismatch")


@frozen(kw_only=True)
class AgentResult:
    """Hold what a run that succeeded gives to its caller. Put together from the record, stored in no one place.

    Attributes:
        provenance: of the admission.
        completed_at: instant of the terminal event.
        output_schema: the descriptor's.
        output: JSON within the default limits.
        artifacts: of this run, at most 64, in their order.
        usage: of the whole run.
    """

    provenance: AgentResultProvenance
    completed_at: Timestamp
    output_schema: SchemaReference
    output: BoundedJson = field(repr=False, metadata={"limits": JsonLimits.DEFAULT})
    artifacts: AgentArtifacts
    usage: BudgetUsage

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_json(self, self.output, JsonLimits.DEFAULT)
        check_artifacts("AgentResult", self.artifacts)
        if self.usage.model_attempts < self.usage.model_turns:
            raise _refused("fewer_attempts_than_turns")
        if self.output.size > int(self.usage.output_bytes):
            raise _refused("output_understated")
        if total_size(self.artifacts) > self.usage.artifact_bytes:
            raise _refused("artifacts_understated")
        if any(each.tenant_id != self.provenance.tenant_id for each in self.artifacts):
            raise _refused("artifact_of_another_tenant")
        if any(each.run_id != self.provenance.run_id for each in self.artifacts):
            raise _refused("artifact_of_another_run")

    def validate_for(
        self,
        provenance: AgentResultProvenance,
        request: AgentRequest,
        descriptor: AgentDescriptor,
        budget: ResolvedBudget,
    ) -> None:
        """Check the result against what was admitted, before it commits and on every read.

        Raises:
            InvalidValueError: ``provenance_mismatch``, those of the request, ``input_understated``,
                ``schema_mismatch`` or ``missing_model_turn``: the first that applies.
            BudgetExceededError: the usage does not fit, or the deadline had come.
        """
        provenance.validate_for(descriptor)
        if self.provenance != provenance:
            raise _refused("provenance_mismatch")
        request.validate_for(descriptor, budget)
        if request.input.size > int(self.usage.input_bytes):
            raise _refused("input_understated")
        if self.output_schema != descriptor.output_schema:
            raise _refused("schema_mismatch")
        if descriptor.model is not None and int(self.usage.model_turns) == 0:
            raise _refused("missing_model_turn")
        budget.check_usage(self.usage, self.completed_at)


def _refused(reason: str) -> InvalidValueError:
    return InvalidValueError(type_name="AgentResult", reason=reason)
