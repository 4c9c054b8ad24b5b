"""Take the steps of a call inside a caller's transaction, on its connection and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.steps import Steps, follow
from agentruns.store.unit_of_work import UnitOfWork

T = TypeVar("T")

#: What a synchronous caller's transaction is passed as.
Transaction: TypeAlias = Session | Connection
#: What an asynchronous caller's transaction is passed as.
AsyncTransaction: TypeAlias = AsyncSession | AsyncConnection


def follow_joined(steps_of: Callable[[DatabaseClock], Steps[T]], transaction: Transaction, *, schema: str) -> T:
    """Take steps in a transaction that synchronous code has begun.

    Raises:
        TypeError: neither a ``Session`` nor a ``Connection`` was passed.
        UnitOfWorkError: ``autocommit``.
    """
    work, clock = UnitOfWork.joined(transaction, schema=schema), DatabaseClock()
    return follow(steps_of(clock), work, clock)


async def join(session: AsyncTransaction, call: Callable[[Transaction], T]) -> T:
    """Call synchronous code with the caller's transaction, on its connection."""
    check_transaction(session)
    return await session.run_sync(call)


def check_transaction(session: object) -> None:
    """Refuse what is no transaction of SQLAlchemy's asyncio, before anything is sent.

    Raises:
        TypeError: it says what to pass.
    """
    if session is not None and not isinstance(session, AsyncSession | AsyncConnection):
        given = type(session).__name__
        raise TypeError(
            f"pass session as an AsyncSession or AsyncConnection, not {given}; synchronous code uses JoinedAgentRuns"
        )
