"""The service's own engine, and transactions that are repeated whole."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from agentruns import install_failover_handler, is_transient

T = TypeVar("T")

_log: Final = logging.getLogger("order_reviews.database")

_ATTEMPTS: Final = 5
_PAUSE: Final = 0.02
#: The server undid the transaction because of another one: a serialization failure, a deadlock.
_UNDONE: Final = frozenset({"40001", "40P01"})


class DatabaseUnavailableError(Exception):
    """The database gave no answer. Whether the transaction has committed is not known: ask again, with the same key."""


def make_engine(url: str | URL, *, isolation_level: str = "READ COMMITTED") -> AsyncEngine:
    """Make the engine of our own tables.

    Errors hold no parameters. The path is said, because a role that is called like the schema of the runs would
    otherwise put our tables into it.
    """
    engine = create_async_engine(
        url,
        isolation_level=isolation_level,
        hide_parameters=True,
        pool_pre_ping=True,
        connect_args={"server_settings": {"search_path": "public"}},
    )
    install_failover_handler(engine)
    return engine


async def in_transaction(sessions: async_sessionmaker[AsyncSession], work: Callable[[AsyncSession], Awaitable[T]]) -> T:
    """Run ``work`` in one transaction and give what it returned once that has committed.

    What the server undid because of another transaction is run again from its first statement. So ``work`` must bring
    the same key and make the same request each time, and must change nothing outside of the transaction.

    Raises:
        DatabaseUnavailableError: no answer, or others were faster each time.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            async with sessions.begin() as session:
                return await work(session)
        except (OSError, PoolTimeoutError, DBAPIError) as error:
            if not _was_undone(error):
                raise _translated(error) from None
        _log.info("transaction undone by another one, attempt %d", attempt)
        await asyncio.sleep(random.uniform(0, _PAUSE * 2**attempt))  # noqa: S311 - who goes first is no secret
    raise DatabaseUnavailableError


def _was_undone(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _UNDONE


def _translated(error: Exception) -> Exception:
    """Tell a database that does not answer from one that has answered: the latter is a defect of ours."""
    return DatabaseUnavailableError() if is_transient(error) else error
