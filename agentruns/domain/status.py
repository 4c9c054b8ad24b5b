"""The status of a run, as its lifecycle events leave it."""

from __future__ import annotations

from enum import Enum, unique


@unique
class RunStatus(Enum):
    """Say what may happen to a run next.

    ``PENDING`` exists before the admission only: no stored run has it and no snapshot shows it.
    """

    PENDING = "pending"
    ACTIVE = "active"
    WAITING = "waiting"
    CANCELLATION_REQUESTED = "cancellation_requested"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """The run is over and nothing of it changes any more."""
        return self in _TERMINAL

    @property
    def is_claimable(self) -> bool:
        """A worker may take a lease on the run."""
        return self in _CLAIMABLE

    #: A member exists once, so where it is says enough; an enum would hash its name, by a call, at each look-up.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value


_TERMINAL = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})
_CLAIMABLE = frozenset({RunStatus.ACTIVE, RunStatus.CANCELLATION_REQUESTED})
