"""Who admits a run, by which policy, and which policies limit it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Self

from attrs import field, frozen

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.digests import Digest
from agentruns.domain.identity import CapabilityIdentity, CapabilityReference, PrincipalIdentity
from agentruns.domain.json_bounds import check_json
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.money import Money
from agentruns.domain.payload import JournalPayload
from agentruns.domain.scalars import CapabilityName, JournalEventKind, SubjectId, Version
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.uris import IssuerId
from agentruns.errors import InvalidValueError

#: The kind of evidence that an authority carries.
EVIDENCE_KIND: Final = JournalEventKind("agent-admission-granted")

#: The policy behind the layer that the system states by default.
SYSTEM_DEFAULT_SOURCE: Final = CapabilityIdentity(
    owner=PrincipalIdentity(issuer=IssuerId("https://agentruns.invalid/"), subject=SubjectId("agentruns")),
    capability=CapabilityReference(name=CapabilityName("budget.system-default"), version=Version("1.0.0")),
)


@frozen(kw_only=True)
class AgentAdmissionBudgetLayer(KeptBytes):
    """State what one policy permits at most.

    Attributes:
        source: the policy that limits.
        decision_digest: of its decision, kept elsewhere. It grants nothing: limits are resolved from what is stated.
        limits: not empty.
    """

    source: CapabilityIdentity
    decision_digest: Digest
    limits: BudgetLimits

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.limits.is_empty:
            raise InvalidValueError(type_name="AgentAdmissionBudgetLayer", reason="empty_limits")

    @classmethod
    def system_default(
        cls, *, deadline: Timestamp = Timestamp.STORED_MAX, costs: Mapping[str, int] | Iterable[Money] = ()
    ) -> Self:
        """State every dimension by the system's default policy, so that any request resolves.

        Nothing adds this layer silently. Equal arguments make equal layers, so a retry sends the same content.
        """
        limits = BudgetLimits.system_default(deadline=deadline, costs=costs)
        return cls(source=SYSTEM_DEFAULT_SOURCE, decision_digest=limits.digest, limits=limits)


@frozen(kw_only=True)
class AgentAdmissionAuthority(KeptBytes):
    """Record a decision that has been taken: who was authenticated, and what a policy granted.

    An audit snapshot: nothing here verifies a signature.

    Attributes:
        principal: on whose behalf the run is admitted.
        granted_scopes: what the principal may use.
        policy: which policy decided.
        policy_digest: of that policy's content.
        evidence: of kind ``agent-admission-granted``; JSON within the default limits.
    """

    principal: PrincipalIdentity
    granted_scopes: ScopeSet
    policy: CapabilityIdentity
    policy_digest: Digest
    evidence: JournalPayload = field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.evidence.kind != EVIDENCE_KIND:
            raise InvalidValueError(type_name="AgentAdmissionAuthority", reason="wrong_evidence_kind")
        check_json(self, self.evidence.data, JsonLimits.DEFAULT)
