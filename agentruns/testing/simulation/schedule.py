"""What a simulated run leaves open: who dies when, who is faster, and how much runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, unique
from typing import Protocol, TypeVar

from attrs import frozen

T = TypeVar("T")


class WorkerDiedError(BaseException):
    """Leave a node as the death of its worker would: nothing of the attempt is written, nothing is given back."""


@unique
class Fault(Enum):
    """Say what befalls a worker at a commit."""

    NONE = "none"
    BEFORE = "before"
    AFTER = "after"


class Schedule(Protocol):
    """Decide everything that neither the graph nor its record decides."""

    def fault(self, commit: str, /) -> Fault:
        """Say whether the worker dies before or after a commit, which is described in words."""
        ...

    def order(self, names: Sequence[T], /) -> Sequence[T]:
        """Put nodes that are executed together, or waits that are settled, into the order in which they come."""
        ...

    def overlaps(self) -> bool:
        """Say whether the nodes of a batch are under way at the same time."""
        ...

    def width(self, most: int, /) -> int:
        """Say how many nodes a worker executes together, at least one and at most that many."""
        ...


@frozen
class Undisturbed:
    """Let nothing go wrong: one worker, its nodes one after another in the order of their ids."""

    def fault(self, _commit: str, /) -> Fault:
        """Let every commit succeed."""
        return Fault.NONE

    def order(self, names: Sequence[T], /) -> Sequence[T]:
        """Leave the order as it is."""
        return names

    def overlaps(self) -> bool:
        """Let a node end before the next one begins."""
        return False

    def width(self, most: int, /) -> int:
        """Execute as many as may be."""
        return most
