"""Count what became of the runs that a worker drove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from attrs import frozen

from agentruns.runtime.agent_loop import AgentLoopOutcome


@frozen(kw_only=True)
class WorkReport:
    """Say what became of the runs that a worker drove. A run that was driven twice counts twice.

    Attributes:
        outcomes: how drives ended, and how many so.
        errors: classes of the errors that drives ended with, and how many so; the log names the runs.
        settled_count: timers that fired, interrupts that expired and deadlines that came.
    """

    outcomes: Mapping[AgentLoopOutcome, int]
    errors: Mapping[str, int]
    settled_count: int

    @classmethod
    def of(cls, ends: Mapping[AgentLoopOutcome | str, int], *, settled_count: int) -> Self:
        """Tell outcomes from the names of errors."""
        return cls(
            outcomes={end: count for end, count in ends.items() if isinstance(end, AgentLoopOutcome)},
            errors={end: count for end, count in ends.items() if isinstance(end, str)},
            settled_count=settled_count,
        )

    @property
    def drive_count(self) -> int:
        """How often a run was claimed and driven."""
        return sum(self.outcomes.values()) + sum(self.errors.values())
