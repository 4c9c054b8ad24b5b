"""Submit and drive inside one transaction of a test, which rolls everything back: no worker could see its rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final, TypeVar

from attrs import evolve
from sqlalchemy import URL, Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession

from agentruns.domain.scalars import TenantId
from agentruns.errors import InvalidOptionError, UnitOfWorkError
from agentruns.runtime.deployment import Deployment, opened_on
from agentruns.runtime.deployment_open import OpenDeployment
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.transactions import AsyncTransaction
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.options import StoreOptions
from agentruns.store.transient import sqlstate_of
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.verification import verify_schema

T = TypeVar("T")

#: The server refuses every further statement of a transaction in which one has failed.
_ABORTED: Final = "25P02"
#: Whoever stops in a debugger keeps the lease.
_OPTIONS: Final = StoreOptions(lease_duration=timedelta(minutes=5), notifies=False)
#: Nodes may use the same connection, which serves one task at a time.
_ONE_BY_ONE: Final = AgentWorkerOptions(slots=1, listens=False)


class TransactionStore(AgentRunStore):
    """Be a store whose every statement belongs to one transaction of the caller's.

    It takes the place of an :class:`AgentRunStore` in a test, for whatever is made on one. Nothing is begun, committed
    or rolled back, no second connection is opened, and nobody is notified. The transaction has to be begun before the
    store is opened, and to last until it is closed. An error of the database aborts it, as any other statement's would;
    what is asked for afterwards is answered with that error.

    Args:
        transaction: an ``AsyncConnection`` in a transaction, or an ``AsyncSession``. Of a session that is bound to a
            connection, that connection is used, and what the session does is its own affair.
        options: of the store. Those of the pool, its timeouts and notifications have no effect.
    """

    def __init__(self, transaction: AsyncTransaction, options: StoreOptions | None = None) -> None:
        if not isinstance(transaction, AsyncSession | AsyncConnection):
            raise TypeError(f"pass an AsyncConnection or AsyncSession, not {type(transaction).__name__}")
        super().__init__(URL.create("postgresql+asyncpg"), evolve(options or _OPTIONS, notifies=False))
        self._transaction = transaction
        self._connection: AsyncConnection | None = None
        self._turn = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self._failure: DBAPIError | None = None

    async def open(self) -> None:
        """Verify that the schema is what this release needs, as the transaction sees it.

        Raises:
            UnitOfWorkError: ``no_transaction`` or ``autocommit``; nothing could be rolled back.
            SchemaVerificationError: the schema is not what this release needs.
        """
        self._connection = await _connection_of(self._transaction)
        self._refusal = ""
        try:
            await self.run_once(self._verify)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Let what is under way end; the transaction goes on."""
        await super().close()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _verify(self, work: UnitOfWork) -> None:
        verify_schema(work.connection, schema=self.options.schema, role=self.options.role)
        self._observe_clock(work)

    def engine_of_one(self, url: str | URL | None = None) -> AsyncEngine:
        """Refuse a second connection: it would see nothing of the transaction.

        Raises:
            InvalidOptionError: always.
        """
        del url
        raise InvalidOptionError(option="listens", value="True", bound="False inside a caller's transaction")

    async def run_once(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run one unit of work in the transaction, after those that were asked for before.

        A caller that is cancelled leaves it to its end: a statement that is broken off takes the connection with it.

        Raises:
            UnitOfWorkError: ``no_transaction``; the transaction has ended.
        """
        self._check_usable()
        task = asyncio.create_task(self._in_turn(work), name="agentruns:inside")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _in_turn(self, work: Callable[[UnitOfWork], T]) -> T:
        async with self._turn:
            connection = self._connection
            if connection is None or connection.closed or not connection.in_transaction():
                raise UnitOfWorkError(reason="no_transaction")
            if connection.invalidated and self._failure is not None:
                raise self._failure
            try:
                return await connection.run_sync(self._joined, work)
            except DBAPIError as error:
                if self._failure is not None and sqlstate_of(error) == _ABORTED:
                    raise self._failure from None
                self._failure = error
                raise

    def _joined(self, connection: Connection, work: Callable[[UnitOfWork], T]) -> T:
        return work(_UnitInside.joined(connection, schema=self.options.schema))


class _UnitInside(UnitOfWork):
    """Let a unit of work that keeps locks for itself be a savepoint of the caller's transaction."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self.connection.begin_nested():
            yield


@asynccontextmanager
async def open_inside(
    deployment: Deployment,
    transaction: AsyncTransaction,
    *,
    tenant: TenantId | str | Sequence[TenantId | str],
    options: StoreOptions | None = None,
) -> AsyncIterator[OpenDeployment]:
    """Open a deployment inside a transaction that the test has begun and rolls back, and publish its graphs there.

    What is opened does everything as :meth:`Deployment.open` gives it: ``runs`` submit, with ``session=`` or without,
    ``waits`` answer, and ``run_until_idle`` drives what has been submitted, one run after the other.

    Args:
        deployment: whose graphs.
        transaction: as :class:`TransactionStore` takes it.
        tenant: whose runs; several may be given.
        options: as :class:`TransactionStore` takes them.

    Raises:
        TypeError: the transaction is neither an ``AsyncConnection`` nor an ``AsyncSession``.
        UnitOfWorkError: ``no_transaction`` or ``autocommit``.
        AgentRunsError: as :meth:`Deployment.open`.
    """
    graphs = deployment.build()
    async with TransactionStore(transaction, options) as store:
        yield await opened_on(store, graphs, tenant, worker_options=_ONE_BY_ONE)


async def _connection_of(transaction: AsyncTransaction) -> AsyncConnection:
    """Find the connection without making the session begin anything, where it has one of its own."""
    if isinstance(transaction, AsyncConnection):
        return transaction
    bound = transaction.bind
    return bound if isinstance(bound, AsyncConnection) else await transaction.connection()
