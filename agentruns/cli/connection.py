"""Where a command's database is, and one connection or a store to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, Literal, TypeVar

from attrs import evolve
from sqlalchemy import URL, Connection
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.cli.options import Settings, connection_settings, database_url_text
from agentruns.cli.output import Output
from agentruns.errors import InvalidOptionError
from agentruns.runtime.engine import create_engine, database_url
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions

T = TypeVar("T")

#: No statement of a migration is cut short; how long it waits for others is an option of the migration.
_MIGRATION_TIME: Final = timedelta(hours=24)


@contextmanager
def database(settings: Settings, output: Output) -> Iterator[URL]:
    """Give the database's URL: from the file, the environment, or an embedded server that runs inside the block.

    Raises:
        InvalidOptionError: the URL is none for PostgreSQL. It is not repeated.
        DeploymentError: the embedded server cannot be used.
    """
    given = database_url_text(settings)
    if given is not None:
        yield _parsed(given)
        return
    from agentruns.operations.embedded import EmbeddedServer  # noqa: PLC0415 - only without a URL

    server = EmbeddedServer()
    if not server.status().is_running:
        output.say(f"Starting the embedded PostgreSQL in {server.status().data_dir}")
    with server:
        yield server.url


def _parsed(given: str) -> URL:
    """Read a URL; one that cannot be read may hold a password anywhere, so nothing of it goes into the error."""
    try:
        return database_url(given)
    except (ArgumentError, ValueError):
        pass
    raise _unreadable()


def _unreadable() -> InvalidOptionError:
    return InvalidOptionError(
        option="database URL", reason="not_readable", value="not shown", bound="postgresql://user@host:port/database"
    )


def read(settings: Settings, output: Output, work: Callable[[Connection], T]) -> T:
    """Run reading statements on one connection, each a transaction of its own.

    Raises:
        ConnectionError: there is no database, and nothing more is said of why.
    """
    with database(settings, output) as url:
        return asyncio.run(_once(url, _options(settings), settings.timeout, work, isolation=None))


def read_through(settings: Settings, output: Output, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    """Run asynchronous code that reads on one connection; errors as of :func:`read`."""
    with database(settings, output) as url:
        return asyncio.run(_through(url, _options(settings), settings.timeout, work, isolation=None))


def use_store(
    settings: Settings,
    output: Output,
    work: Callable[[AgentRunStore], Awaitable[T]],
    *,
    role: Literal["runtime", "operator"] = "runtime",
) -> T:
    """Work with the services of the library, over a store that is open meanwhile and looked at as one of that role.

    Raises:
        SchemaVerificationError: the schema is not what this release needs.
        StoreUnavailableError: there is no database.
    """
    with database(settings, output) as url:
        return asyncio.run(_with_store(url, evolve(_options(settings), role=role), work))


def migrate(settings: Settings, output: Output, work: Callable[[Connection], T]) -> T:
    """Run a migration in one transaction, which is committed when it succeeds; errors as of :func:`read`."""
    options = StoreOptions(schema=settings.schema, pool_size=1, statement_timeout=_MIGRATION_TIME)
    with database(settings, output) as url:
        return asyncio.run(_once(url, options, settings.timeout, work, isolation="READ COMMITTED"))


def _options(settings: Settings) -> StoreOptions:
    statement = timedelta(seconds=settings.timeout)
    return StoreOptions(
        schema=settings.schema,
        pool_size=1,
        statement_timeout=max(statement, timedelta(milliseconds=2)),
        lock_timeout=max(statement / 2, timedelta(milliseconds=1)),
        settings=connection_settings(),
    )


async def _with_store(url: URL, options: StoreOptions, work: Callable[[AgentRunStore], Awaitable[T]]) -> T:
    async with AgentRunStore(url, options) as store:
        return await work(store)


async def _once(
    url: URL, options: StoreOptions, patience: float, work: Callable[[Connection], T], *, isolation: str | None
) -> T:
    return await _through(url, options, patience, lambda connection: connection.run_sync(work), isolation=isolation)


async def _through(
    url: URL,
    options: StoreOptions,
    patience: float,
    work: Callable[[AsyncConnection], Awaitable[T]],
    *,
    isolation: str | None,
) -> T:
    try:
        engine = create_engine(url, options)
        try:
            connection = await _connected(engine.connect(), patience)
            try:
                if isolation is not None:
                    await connection.execution_options(isolation_level=isolation)
                return await work(connection)
            finally:
                await connection.close()
        finally:
            await engine.dispose()
    except (OSError, TimeoutError):
        pass
    raise ConnectionError


async def _connected(connection: AsyncConnection, patience: float) -> AsyncConnection:
    """Open a connection; an option in the URL that the driver does not know is a mistake in the URL."""
    try:
        async with asyncio.timeout(patience):
            return await connection.start()
    except (TypeError, ValueError):
        pass
    raise _unreadable()
