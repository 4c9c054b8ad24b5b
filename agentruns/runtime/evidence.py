"""Say what a run used and what it left: by default, what the fold of its journal adds up to."""

from __future__ import annotations

from typing import Protocol

from agentruns.domain.artifacts import AgentArtifacts
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.ledger.counting import usage_with_output
from agentruns.domain.ledger.state import RunState
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import EvidenceUnavailableError


class RunEvidenceProvider(Protocol):
    """Give exact usage, or say that it is not known. Deterministic, and without effects outside.

    It is asked when the last completion is stored, so a run whose end asks it costs a commit more.
    """

    def terminal(self, state: RunState, output: BoundedJson) -> tuple[AgentArtifacts, BudgetUsage]:
        """Give the artifacts and the usage of a run that succeeds with ``output``."""
        ...

    def usage(self, state: RunState) -> BudgetUsage:
        """Give the usage of a run that fails or is cancelled."""
        ...


class LedgerEvidence:
    """Take everything from the fold; never zero by default."""

    def terminal(self, state: RunState, output: BoundedJson) -> tuple[AgentArtifacts, BudgetUsage]:
        """Add the output to what was used.

        Raises:
            EvidenceUnavailableError: a call is open, so usage is not known.
        """
        self._check_settled(state)
        return (), usage_with_output(state.usage, output)

    def usage(self, state: RunState) -> BudgetUsage:
        """Give what was used up to the head.

        Raises:
            EvidenceUnavailableError: a call is open, so usage is not known.
        """
        self._check_settled(state)
        return state.usage

    def _check_settled(self, state: RunState) -> None:
        for call in state.invocations.values():
            if call.is_open:
                raise EvidenceUnavailableError(
                    tenant_id=state.tenant_id, run_id=state.run_id, reason="usage", invocation_id=call.invocation_id
                )
