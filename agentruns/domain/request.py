"""What a client asks an agent to do."""

from __future__ import annotations

from typing import Self

from attrs import field, frozen

from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget import ResolvedBudget
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.identity import SchemaReference
from agentruns.domain.json_bounds import check_json
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.errors import InvalidValueError


@frozen(kw_only=True)
class AgentRequest(KeptBytes):
    """Ask for one run. It has no ids: those belong to the attempt to submit.

    Attributes:
        input_schema: must be the descriptor's.
        input: JSON within the default limits.
        budget_limits: what this run may use at most; may be empty.
    """

    input_schema: SchemaReference
    input: BoundedJson = field(repr=False, metadata={"limits": JsonLimits.DEFAULT})
    budget_limits: BudgetLimits

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_json(self, self.input, JsonLimits.DEFAULT)

    @classmethod
    def of(
        cls,
        *,
        input_schema: SchemaReference,
        input: JsonTree,  # noqa: A002  # the member's name
        budget_limits: BudgetLimits | None = None,
    ) -> Self:
        """Make a request from a tree of plain JSON; its bytes are taken at once.

        Raises:
            InvalidJsonError: the input is no JSON within the default limits.
        """
        return cls(
            input_schema=input_schema,
            input=BoundedJson.of(input),
            budget_limits=BudgetLimits() if budget_limits is None else budget_limits,
        )

    def validate_for(self, descriptor: AgentDescriptor, budget: ResolvedBudget) -> None:
        """Check the request against its agent and its budget, at admission and on every read.

        Raises:
            InvalidValueError: ``schema_mismatch`` or ``input_too_large``.
        """
        if self.input_schema != descriptor.input_schema:
            raise InvalidValueError(type_name="AgentRequest", reason="schema_mismatch")
        if self.input.size > int(budget.input_bytes):
            raise InvalidValueError(type_name="AgentRequest", reason="input_too_large")
