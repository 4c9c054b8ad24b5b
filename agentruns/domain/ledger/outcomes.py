"""The stored form of how a run ended, and of the request that asked for its end."""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias

from attrs import field, frozen

from agentruns.domain.artifacts import AgentArtifacts, check_artifacts
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import DigestPurpose
from agentruns.domain.failure import Failure, FailureCategory
from agentruns.domain.json_bounds import check_json
from agentruns.domain.json_limits import MIB, JsonLimits
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.wire import register_union
from agentruns.errors import InvalidValueError

MAX_OUTCOME_BYTES: Final = 2 * MIB
MAX_REQUEST_BYTES: Final = MIB


@frozen(kw_only=True)
class StoredSuccess(KeptBytes):
    """Hold what a run that succeeded left. Its instant is the event's, its provenance the admission's.

    Attributes:
        output: of the terminal node.
        artifacts: in the order of the output's node.
        usage: of the whole run.
    """

    digest_purpose: ClassVar = DigestPurpose.OUTCOME
    max_wire_bytes: ClassVar = MAX_OUTCOME_BYTES

    output: BoundedJson = field(repr=False, metadata={"limits": JsonLimits.DEFAULT})
    artifacts: AgentArtifacts
    usage: BudgetUsage

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_json(self, self.output, JsonLimits.DEFAULT)
        check_artifacts("StoredSuccess", self.artifacts)


@frozen(kw_only=True)
class StoredFailure(KeptBytes):
    """Hold what a run that failed left.

    Attributes:
        failure: of any category but ``cancelled``.
        usage: of the whole run.
    """

    digest_purpose: ClassVar = DigestPurpose.OUTCOME
    max_wire_bytes: ClassVar = MAX_OUTCOME_BYTES

    failure: Failure
    usage: BudgetUsage

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.failure.category is FailureCategory.CANCELLED:
            raise InvalidValueError(type_name="StoredFailure", reason="failure_kind_mismatch")


@frozen(kw_only=True)
class StoredCancellation(KeptBytes):
    """Hold what a run that was cancelled left: the failure is the request's.

    Attributes:
        usage: of the whole run, as far as it is known.
    """

    digest_purpose: ClassVar = DigestPurpose.OUTCOME
    max_wire_bytes: ClassVar = MAX_OUTCOME_BYTES

    usage: BudgetUsage

    def __attrs_post_init__(self) -> None:
        check_members(self)


StoredOutcome: TypeAlias = StoredSuccess | StoredFailure | StoredCancellation

register_union(
    StoredOutcome,
    tag="kind",
    variants={"succeeded": StoredSuccess, "failed": StoredFailure, "cancelled": StoredCancellation},
)


@frozen(kw_only=True)
class CancellationRequest(KeptBytes):
    """Hold why somebody asked for the end of a run. The first reason stands.

    Attributes:
        failure: of category ``cancelled``, never to be repeated. It becomes public.
        authority: who asked by hand, and why. It stays in this body.
    """

    digest_purpose: ClassVar = DigestPurpose.CANCELLATION_REQUEST
    max_wire_bytes: ClassVar = MAX_REQUEST_BYTES

    failure: Failure
    authority: OperatorAuthority | None = None

    def __attrs_post_init__(self) -> None:
        check_members(self)
