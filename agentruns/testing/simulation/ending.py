"""What a run has come to, for a comparison with another run of the same content."""

from __future__ import annotations

from typing import Any, Self

from attrs import frozen

from agentruns.domain.ledger.outcomes import StoredFailure, StoredSuccess
from agentruns.domain.ledger.state import RunState


@frozen(kw_only=True)
class RunEnd:
    """Hold what two runs of one graph have in common, however often their workers died.

    Attributes:
        status: how it ended.
        output: of a run that succeeded.
        failure: the code of a run that failed.
        state: the last one.
        supersteps: how far it came.
    """

    status: str
    output: Any
    failure: str | None
    state: Any
    supersteps: int

    @classmethod
    def of(cls, state: RunState) -> Self:
        """Take what a state says."""
        body = None if state.outcome is None else state.outcome.body
        return cls(
            status=state.status.value,
            output=body.output.value if isinstance(body, StoredSuccess) else None,
            failure=str(body.failure.code) if isinstance(body, StoredFailure) else None,
            state=None if state.checkpoint is None else state.checkpoint.state.value,
            supersteps=int(state.superstep),
        )

    def __str__(self) -> str:
        """Say it in one line."""
        came_to = self.failure if self.failure is not None else self.output
        return f"{self.status} in {self.supersteps} steps: {came_to!r}, state {self.state!r}"
