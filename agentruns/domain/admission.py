"""What is admitted: the caller's intent, checked whole, and the instant of its commit."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import ClassVar, Self

from attrs import frozen

from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.authority import AgentAdmissionAuthority, AgentAdmissionBudgetLayer
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget import MAX_LAYERS, ResolvedBudget
from agentruns.domain.copies import copy_with
from agentruns.domain.digests import Digest, DigestPurpose
from agentruns.domain.identity import GraphReference
from agentruns.domain.json_limits import MIB
from agentruns.domain.kept import KeptBytes, keep_bytes
from agentruns.domain.members import check_members
from agentruns.domain.request import AgentRequest
from agentruns.domain.result import AgentResultProvenance
from agentruns.domain.timestamps import Timestamp
from agentruns.errors import AgentAdmissionRejectedError, BudgetExceededError, InvalidValueError

__all__ = [
    "MAX_ADMISSION_BYTES",
    "AgentAdmission",
    "AgentAdmissionAuthority",
    "AgentAdmissionBudgetLayer",
    "AgentAdmissionIntent",
]

MAX_ADMISSION_BYTES = 16 * MIB


@frozen(kw_only=True)
class AgentAdmissionIntent(KeptBytes):
    """Hold everything that the caller decides about a run. Checked without a clock.

    Its canonical bytes are the body of the admission, and its digest the admission's.

    Attributes:
        provenance: names of the run and its agent.
        descriptor: the agent, whole.
        request: what it is asked to do.
        budget_layers: sorted by source; :meth:`of` takes them in any order.
        budget: what the layers, the descriptor and the request resolve to.
        graph: the exact graph.
        authority: who admits the run.
    """

    digest_purpose: ClassVar[DigestPurpose] = DigestPurpose.ADMISSION
    max_wire_bytes: ClassVar[int] = MAX_ADMISSION_BYTES

    provenance: AgentResultProvenance
    descriptor: AgentDescriptor
    request: AgentRequest
    budget_layers: tuple[AgentAdmissionBudgetLayer, ...]
    budget: ResolvedBudget
    graph: GraphReference
    authority: AgentAdmissionAuthority

    def __attrs_post_init__(self) -> None:
        check_members(self)
        _check_parties(self.provenance, self.descriptor, self.authority)
        if self.budget != _resolve(self.budget_layers, self.descriptor, self.request):
            raise _refused("resolved_budget_mismatch")
        self.request.validate_for(self.descriptor, self.budget)
        self._check_size()

    def _check_size(self) -> None:
        """Encode the body, whose bytes are needed for its digest anyway; only its size can be wrong."""
        try:
            _ = self.canonical
        except InvalidValueError as error:
            raise _refused("snapshot_too_large") from error

    @classmethod
    def of(
        cls,
        *,
        provenance: AgentResultProvenance,
        descriptor: AgentDescriptor,
        request: AgentRequest,
        budget_layers: Iterable[AgentAdmissionBudgetLayer],
        graph: GraphReference,
        authority: AgentAdmissionAuthority,
    ) -> Self:
        """Make an intent from layers in any order, and resolve its budget.

        Raises:
            InvalidValueError: the first broken rule: ``retired_agent``, ``provenance_mismatch``,
                ``insufficient_scopes``, ``too_many_budget_layers``, ``duplicate_budget_layer``, those of
                :meth:`ResolvedBudget.resolve`, of :meth:`AgentRequest.validate_for`, and ``snapshot_too_large``.
        """
        _check_parties(provenance, descriptor, authority)
        layers = tuple(sorted(budget_layers, key=lambda layer: layer.source))
        return cls(
            provenance=provenance,
            descriptor=descriptor,
            request=request,
            budget_layers=layers,
            budget=_resolve(layers, descriptor, request),
            graph=graph,
            authority=authority,
        )

    def of_another_run(
        self,
        provenance: AgentResultProvenance,
        input: BoundedJson,  # noqa: A002  # the member's name
        *,
        canonical: bytes,
    ) -> Self:
        """Give an intent that differs from this one in the names of its run and in its input alone.

        What the two have in common is not checked again.

        Args:
            provenance: of the other run, and of the same agent.
            input: of the other request.
            canonical: the bytes of the other intent, which the caller has compared.

        Raises:
            InvalidValueError: ``provenance_mismatch``, and those of :meth:`AgentRequest.validate_for`.
        """
        known = self.request
        request = AgentRequest(input_schema=known.input_schema, input=input, budget_limits=known.budget_limits)
        provenance.validate_for(self.descriptor)
        request.validate_for(self.descriptor, self.budget)
        intent = copy_with(self, {"provenance": provenance, "request": request})
        keep_bytes(intent, canonical)
        return intent


@frozen(kw_only=True)
class AgentAdmission:
    """Hold what was committed. Its body is the intent's alone; the instant is that of event 1.

    Attributes:
        intent: what the caller decided.
        admitted_at: the database's instant, before the budget's deadline.
    """

    intent: AgentAdmissionIntent
    admitted_at: Timestamp

    def __attrs_post_init__(self) -> None:
        check_members(self)
        self.intent.budget.check_deadline(self.admitted_at)  # without usage nothing else is exceeded

    @classmethod
    def commit(cls, intent: AgentAdmissionIntent, admitted_at: Timestamp) -> Self:
        """Admit an intent at an instant of the database.

        Raises:
            AgentAdmissionRejectedError: ``deadline``: the request came too late.
        """
        try:
            return cls(intent=intent, admitted_at=admitted_at)
        except BudgetExceededError as error:
            raise AgentAdmissionRejectedError(
                reason=error.reason, tenant_id=intent.provenance.tenant_id, run_id=intent.provenance.run_id
            ) from error

    @property
    def digest(self) -> Digest:
        """Digest of the intent's body."""
        return self.intent.digest


def _check_parties(
    provenance: AgentResultProvenance, descriptor: AgentDescriptor, authority: AgentAdmissionAuthority
) -> None:
    if descriptor.metadata.is_retired:
        raise _refused("retired_agent")
    provenance.validate_for(descriptor)
    if not descriptor.metadata.required_scopes <= authority.granted_scopes:
        raise _refused("insufficient_scopes")


def _resolve(
    layers: tuple[AgentAdmissionBudgetLayer, ...], descriptor: AgentDescriptor, request: AgentRequest
) -> ResolvedBudget:
    own = [limits for limits in (descriptor.budget_limits, request.budget_limits) if not limits.is_empty]
    if len(layers) + len(own) > MAX_LAYERS:
        raise _refused("too_many_budget_layers")
    for before, after in pairwise(layer.source for layer in layers):
        if before == after:
            raise _refused("duplicate_budget_layer")
        if after < before:
            raise _refused("unsorted")
    return ResolvedBudget.resolve([layer.limits for layer in layers] + own)


def _refused(reason: str) -> InvalidValueError:
    return InvalidValueError(type_name="AgentAdmissionIntent", reason=reason)
