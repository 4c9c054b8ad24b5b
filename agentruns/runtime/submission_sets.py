"""Prepare many submissions of one call: each with an outcome of its own, no key and no run id twice at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from attrs import frozen

from agentruns.domain.json_limits import MIB
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import InvalidValueError
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.preparation import prepare
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.submission import SubmissionSteps, submission_steps
from agentruns.runtime.verification import RunVerifier

MAXIMUM_ITEMS: Final = 256
MAXIMUM_BYTES: Final = 64 * MIB
_PAIR: Final = 2

Submission: TypeAlias = tuple[AgentSubmissionKey, DurableAgentAdmissionRequest]


@frozen
class SubmissionSet:
    """Hold what one call submits, in the order in which it was given. Nothing of an item is looked at yet.

    Attributes:
        submissions: of one tenant.
        executables: what each item is prepared against when its turn comes.
    """

    submissions: tuple[Submission, ...]
    executables: ExecutableGraphRegistry

    @classmethod
    def of(cls, submissions: Sequence[Submission], executables: ExecutableGraphRegistry) -> SubmissionSet:
        """Take a set.

        Raises:
            InvalidValueError: ``wrong_count``, ``tenant_mismatch`` or ``too_large``: of the set, whose items are not
                looked at then.
        """
        _check(submissions)
        return cls(tuple(submissions), executables)

    def steps(
        self, *, clock: DatabaseClock, verifier: RunVerifier, is_joined: bool
    ) -> list[tuple[SubmissionSteps, frozenset[int]]]:
        """Give the steps of each item, and the positions of the items that are decided before it."""
        return [
            (self._steps(item, clock=clock, verifier=verifier, is_joined=is_joined), rivals)
            for item, rivals in zip(self.submissions, self._rivals(), strict=True)
        ]

    def _steps(
        self, item: Submission, *, clock: DatabaseClock, verifier: RunVerifier, is_joined: bool
    ) -> SubmissionSteps:
        """Prepare an item when its turn comes; what cannot be prepared has come to its error."""
        key, request = item
        prepared = prepare(request, self.executables, key=key)
        return (yield from submission_steps(prepared, clock=clock, verifier=verifier, is_joined=is_joined))

    def _rivals(self) -> Iterator[frozenset[int]]:
        """Find for each item the last earlier ones with its key or its run id."""
        last: dict[object, int] = {}
        for position, (key, request) in enumerate(self.submissions):
            names = (key, request.run_id)
            yield frozenset(last[name] for name in names if name in last)
            last |= dict.fromkeys(names, position)


def _check(submissions: Sequence[Submission]) -> None:
    if not 1 <= len(submissions) <= MAXIMUM_ITEMS:
        raise _invalid("wrong_count")
    for pair in submissions:
        check_argument("each item of submissions", pair, tuple)
        if len(pair) != _PAIR:
            raise TypeError(f"pass each item of submissions as (key, request), not as {len(pair)} values")
        key, request = pair
        check_argument("key", key, AgentSubmissionKey)
        check_argument("request", request, DurableAgentAdmissionRequest)
    if len({request.tenant_id for _, request in submissions}) > 1:
        raise _invalid("tenant_mismatch")
    if sum(_sizes(submissions)) > MAXIMUM_BYTES:
        raise _invalid("too_large")


def _sizes(submissions: Sequence[Submission]) -> Iterator[int]:
    for _, request in submissions:
        yield len(request.intent.canonical) + len(request.initial_state.canonical)


def _invalid(reason: str) -> InvalidValueError:
    return InvalidValueError(type_name="submit_many", reason=reason)
