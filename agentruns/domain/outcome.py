"""How a run ended, as its caller sees it."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from attrs import frozen

from agentruns.domain.failure import Failure, FailureCategory
from agentruns.domain.members import check_members
from agentruns.domain.result import AgentResult
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.wire import register_union
from agentruns.errors import InvalidValueError


@frozen(kw_only=True)
class SucceededOutcome:
    """The run reached its result."""

    kind: ClassVar[str] = "succeeded"

    result: AgentResult

    def __attrs_post_init__(self) -> None:
        check_members(self)

    @property
    def completed_at(self) -> Timestamp:
        """Instant of the terminal event."""
        return self.result.completed_at

    @property
    def usage(self) -> BudgetUsage:
        """Usage of the whole run."""
        return self.result.usage


@frozen(kw_only=True)
class FailedOutcome:
    """The run failed.

    Attributes:
        failure: of any category but ``cancelled``.
        completed_at: instant of the terminal event.
        usage: of the whole run; it may exceed the budget.
    """

    kind: ClassVar[str] = "failed"

    failure: Failure
    completed_at: Timestamp
    usage: BudgetUsage

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.failure.category is FailureCategory.CANCELLED:
            raise InvalidValueError(type_name="FailedOutcome", reason="failure_kind_mismatch")


@frozen(kw_only=True)
class CancelledOutcome:
    """The run was cancelled as somebody had requested.

    Attributes:
        failure: that of the request: category ``cancelled``, advice ``never``.
        completed_at: instant of the terminal event.
        usage: of the whole run, as far as it is known.
    """

    kind: ClassVar[str] = "cancelled"

    failure: Failure
    completed_at: Timestamp
    usage: BudgetUsage

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if not self.failure.is_cancellation:
            raise InvalidValueError(type_name="CancelledOutcome", reason="failure_kind_mismatch")


AgentRunTerminalOutcome: TypeAlias = SucceededOutcome | FailedOutcome | CancelledOutcome

register_union(
    AgentRunTerminalOutcome,
    tag="kind",
    variants={each.kind: each for each in (SucceededOutcome, FailedOutcome, CancelledOutcome)},
)
