"""One database of an asyncio process: its engine, its clock, and a lane for each kind of statement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from attrs import evolve
from sqlalchemy import URL, func, select
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.util import greenlet_spawn

from agentruns.errors import InvalidOptionError, StoreUnavailableError, UnitOfWorkError
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.engine import create_engine
from agentruns.runtime.lane import MAXIMUM_BYTES, Answer_co, Held, Item_contra, Lane
from agentruns.runtime.retry import Retry
from agentruns.store.driver_texts import DriverTexts
from agentruns.store.mapping import instant
from agentruns.store.options import StoreOptions
from agentruns.store.settings import check_settings
from agentruns.store.unit_of_work import UnitOfWork, schema_names
from agentruns.store.verification import verify_schema

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")

#: A protocol violation: that is how a pooler refuses a start parameter.
_REFUSED_PARAMETER: Final = "08P01"


class SetStatement(Protocol[Item_contra, Answer_co]):
    """Send a set in one statement and answer each item."""

    def __call__(
        self, work: UnitOfWork, items: Sequence[Item_contra], /, *, skip_locked: bool
    ) -> Sequence[Answer_co | Held]:
        """Send; with ``skip_locked`` items whose row somebody else holds are passed over."""
        ...


class Database:
    """Send units of work and sets to one schema of one PostgreSQL database, for one event loop.

    Attributes:
        options: how it is used.
        clock: the database's time, carried forward.
        retry: how often passing trouble is waited out.
        reading: the same for what commits nothing.
    """

    def __init__(self, url: str | URL, options: StoreOptions | None = None) -> None:
        self.options = options or StoreOptions()
        self.clock = DatabaseClock()
        self.retry = Retry(
            attempts=self.options.attempts, initial_delay=self.options.initial_delay, schema=self.options.schema
        )
        self.reading = evolve(self.retry, commits=False)
        self._engine: AsyncEngine = create_engine(url, self.options)
        self._texts = DriverTexts(schema_names(self.options.schema))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refusal = "not_entered"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Verify that the schema is what this release needs.

        Raises:
            SchemaVerificationError: it is not; its sentence names the command that repairs it.
            InvalidOptionError: the connection's timeouts or its durability are weaker than the options say, or a pooler
                refuses to be told of them.
            StoreUnavailableError: the database cannot be reached.
        """
        self._refusal = ""
        try:
            await self.read(self._verify)
        except StoreUnavailableError as error:
            await self.close()
            if error.sqlstate == _REFUSED_PARAMETER and self.options.settings == "startup":
                bound = '"role" behind a pooler that refuses start parameters'
                raise InvalidOptionError(option="settings", value="startup", bound=bound) from None
            raise
        except BaseException:
            await self.close()
            raise

    def _verify(self, work: UnitOfWork) -> None:
        verify_schema(work.connection, schema=self.options.schema, role=self.options.role)
        check_settings(work.connection, self.options)
        self._observe_clock(work)

    async def close(self) -> None:
        """Return all connections; what is asked for afterwards is refused."""
        self._refusal = "closed"
        await self._engine.dispose()

    def engine_of_one(self, url: str | URL | None = None) -> AsyncEngine:
        """Make an engine of one connection with this one's options: to the same database, or to ``url``."""
        return create_engine(self._engine.url if url is None else url, evolve(self.options, pool_size=1))

    async def read(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run one unit of work of our own that commits nothing, again while the database's trouble passes."""
        return await self.reading.run(lambda: self.run_once(work))

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run one unit of work of our own, again while the database's trouble passes.

        ``work`` is called once for each try and must send the same ids each time.
        """
        return await self.retry.run(lambda: self.run_once(work))

    async def run_once(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run one unit of work of our own on a connection in autocommit; each statement is a transaction."""
        self._check_usable()
        return await greenlet_spawn(self._on_connection, work)

    def _on_connection(self, work: Callable[[UnitOfWork], T]) -> T:
        """Check out, work and return in one greenlet: each further one costs as much as a small statement."""
        with self._engine.sync_engine.connect() as connection:
            try:
                return work(UnitOfWork(connection, schema=self.options.schema, texts=self._texts))
            finally:
                if self._refusal:
                    # Its pool was given up meanwhile and would keep it open for ever.
                    connection.invalidate()

    def lane(
        self,
        statement: SetStatement[Item, Answer],
        *,
        name: str,
        maximum_bytes: int = MAXIMUM_BYTES,
        commits: bool = True,
        takes_all: bool = False,
    ) -> Lane[Item, Answer]:
        """Make the lane of one kind of statement: what waits for a connection shares the next one.

        In a set of more than one, items whose row is held by others are passed over and go again alone.

        Args:
            statement: what sends a set.
            name: by which metrics tell lanes apart.
            maximum_bytes: of a set.
            commits: whether an answer that was lost leaves in doubt what happened.
            takes_all: as :class:`Lane` has it.
        """

        async def send(items: Sequence[Item], *, is_alone: bool) -> Sequence[Answer | Held]:
            await self.ensure_clock()
            return await self.run_once(lambda work: statement(work, items, skip_locked=not is_alone))

        retry = self.retry if commits else self.reading
        return Lane(send, retry, self.options.lane_connections, maximum_bytes, name=name, takes_all=takes_all)

    async def ensure_clock(self) -> None:
        """Ask for the database's time when no statement has brought it yet."""
        if not self.clock.has_observation:
            await self.run_once(self._observe_clock)

    async def ask_time(self) -> None:
        """Ask for the database's time, whatever is known of it: an answer shows that the database is there.

        Raises:
            StoreUnavailableError: it is not.
        """
        await self.read(self._observe_clock)

    def _observe_clock(self, work: UnitOfWork) -> None:
        self.clock.observe(instant(work.execute(select(func.clock_timestamp())).scalar_one()))

    def _check_usable(self) -> None:
        if self._refusal:
            raise UnitOfWorkError(reason=self._refusal)
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UnitOfWorkError(reason="wrong_event_loop")
