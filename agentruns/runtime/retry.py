"""Repeat our own calls while the database's trouble passes, with the same ids each time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, TypeVar

from attrs import frozen
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from agentruns.errors import CommitOutcomeUnknownError, StoreUnavailableError
from agentruns.runtime.telemetry.counts import retried
from agentruns.store.failures import refusal
from agentruns.store.transient import Transient, transient

T = TypeVar("T")

_LONGEST_PAUSE: Final = 1.0


@frozen(kw_only=True)
class Retry:
    """Try ``attempts`` times, pausing ``initial_delay`` doubled each time, at most a second, with full jitter.

    Attributes:
        commits: whether what is tried may commit something; a reading whose answer was lost is in no doubt.
    """

    attempts: int
    initial_delay: timedelta
    schema: str
    commits: bool = True

    def attempts_before_last(self) -> Iterator[int]:
        """Count the tries but the last, from 1; there is always one."""
        return iter(range(1, max(self.attempts, 2)))

    async def pause(self, attempt: int) -> None:
        """Wait before the try after ``attempt``."""
        longest = min(self.initial_delay.total_seconds() * 2 ** (attempt - 1), _LONGEST_PAUSE)
        await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - jitter, not a secret

    async def run(self, call: Callable[[], Awaitable[T]], *, after: Sequence[Transient] = ()) -> T:
        """Run ``call`` until it answers; tries that have met trouble already count, as those of ``after`` do.

        Raises:
            StoreUnavailableError: every attempt met passing trouble; repeat the call later with the same ids.
            CommitOutcomeUnknownError: the same, and every attempt may have committed.
        """
        troubles = list(after)
        for attempt in range(len(after) + 1, self.attempts + 1):
            try:
                return await call()
            except (DBAPIError, OSError, TimeoutError, PoolTimeoutError) as error:
                trouble, failure = transient(error), error
            # Raised outside the block: the driver's error carries SQL and parameters and must not be reachable.
            if trouble is None:
                if not isinstance(failure, DBAPIError):
                    raise failure
                raise refusal(failure, schema=self.schema)
            troubles.append(trouble)
            if attempt < self.attempts:
                retried(trouble)
                await self.pause(attempt)
        raise _exhausted(troubles, commits=self.commits)


@contextmanager
def as_store_error(schema: str, *, commits: bool = True) -> Iterator[None]:
    """Turn the database's trouble with a call that is not repeated into an error of ours.

    Args:
        schema: the database schema.
        commits: as :class:`Retry` has it.

    Raises:
        StoreUnavailableError: the trouble passes.
        CommitOutcomeUnknownError: the same, and the statement may have committed.
    """
    trouble: Transient | None = None
    failure: BaseException | None = None
    try:
        yield
    except (DBAPIError, OSError, TimeoutError, PoolTimeoutError) as error:
        trouble, failure = transient(error), error
    if trouble is not None:
        raise _exhausted([trouble], commits=commits)
    if isinstance(failure, DBAPIError):
        raise refusal(failure, schema=schema)
    if failure is not None:
        raise failure


def _exhausted(troubles: list[Transient], *, commits: bool) -> StoreUnavailableError | CommitOutcomeUnknownError:
    if commits and all(trouble.is_in_doubt for trouble in troubles):
        return CommitOutcomeUnknownError(attempts=len(troubles))
    return StoreUnavailableError(attempts=len(troubles), sqlstate=troubles[-1].sqlstate)
