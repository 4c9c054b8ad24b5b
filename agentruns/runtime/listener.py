"""Hear on a connection of its own what the processes of a schema tell."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from attrs import frozen
from sqlalchemy import URL

from agentruns.runtime.database import Database
from agentruns.runtime.telemetry.counts import listening_changed, wake_up_received

if TYPE_CHECKING:
    import asyncpg

    Driver: TypeAlias = asyncpg.Connection[Any]

_log: Final = logging.getLogger("agentruns.runtime.listener")

#: How often the connection is asked whether it still is one.
_KEEP_ALIVE: Final = 30.0
#: How long connecting, and each answer, may take.
_BOUND: Final = 10.0
_SHORTEST_BACK_OFF: Final = 0.1
_LONGEST_BACK_OFF: Final = 30.0
#: As often as this a pause is doubled at most; by then it has reached the longest.
_DOUBLED: Final = 10


class _PooledError(Exception):
    """The connection ends at a pooler, behind which nothing would ever be heard."""


@frozen(kw_only=True)
class Subject:
    """Say what is listened for.

    Attributes:
        channel: on which it is told.
        lost: what the log says when it is not heard, at ``level``.
        regained: what the log says when it is heard again.
    """

    channel: str
    lost: str
    regained: str
    level: int = logging.WARNING


class Listener:
    """Hand on what is told on a channel, as long as the block lasts; connect again after every loss.

    Whoever listens is woken when listening begins, because what was told before was told to nobody, and when it ends,
    because then nothing is heard any more.

    Args:
        database: where it is told.
        url: of a direct connection; ``None`` for the database's own.
        subject: what is listened for.
        heard: called with each payload on the event loop; it must not wait.
        wake: called on the event loop when listening has begun or ended; it must not wait.
    """

    def __init__(
        self,
        database: Database,
        url: str | URL | None,
        *,
        subject: Subject,
        heard: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        self._database = database
        self._url = url
        self._subject = subject
        self._hand_on = heard
        self._wake = wake
        self._task: asyncio.Task[None] | None = None
        self.is_listening = False
        self.trouble: str | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._listen_always(), name="agentruns:listener")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.is_listening, self.trouble = False, None
        listening_changed(self, is_degraded=False)

    async def _listen_always(self) -> None:
        failures = 0
        while True:
            try:
                async with self._connected() as driver:
                    await self._listen(driver)
            except Exception as error:  # noqa: BLE001 - whatever it was, the worker polls meanwhile
                failures = 0 if self.is_listening else failures
                self._lost(error)
            # Jittered, so that a server that comes back does not meet all workers at once.
            await asyncio.sleep(_back_off(failures) * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret
            failures += 1

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Driver]:
        """Open a connection of an engine of its own: it has nothing to do with the database's other connections."""
        engine = self._database.engine_of_one(self._url)
        try:
            async with asyncio.timeout(_BOUND):
                connection = await engine.connect()
            try:
                driver: Any = (await connection.get_raw_connection()).driver_connection
                yield driver
            finally:
                # It listens, so nobody else may have it.
                await connection.invalidate()
                await connection.close()
        finally:
            await engine.dispose()

    async def _listen(self, driver: Driver) -> None:
        """Listen until the connection is lost, which raises."""
        is_lost = asyncio.Event()
        driver.add_termination_listener(lambda _: is_lost.set())
        await _check_direct(driver)
        async with asyncio.timeout(_BOUND):
            await driver.add_listener(self._subject.channel, self._heard)
        self._begun()
        while True:
            try:
                async with asyncio.timeout(_KEEP_ALIVE):
                    await is_lost.wait()
            except TimeoutError:
                await _check_direct(driver)
                listening_changed(self, is_degraded=False)
            else:
                raise ConnectionError

    def _heard(self, _connection: object, _process: int, _channel: str, payload: object) -> None:
        wake_up_received()
        self._hand_on(str(payload))

    def _begun(self) -> None:
        if self.trouble is not None:
            _log.info(self._subject.regained)
        self.is_listening, self.trouble = True, None
        listening_changed(self, is_degraded=False)
        self._wake()

    def _lost(self, error: Exception) -> None:
        if self.trouble is None:
            _log.log(self._subject.level, self._subject.lost, extra={"error": type(error).__name__.lstrip("_")})
        was_listening, self.is_listening = self.is_listening, False
        self.trouble = "listener_behind_pooler" if isinstance(error, _PooledError) else "listener_down"
        listening_changed(self, is_degraded=True)
        if was_listening:
            self._wake()


async def _check_direct(driver: Driver) -> None:
    """Ask who answers. A pooler tells its clients a process number of its own, and would deliver nothing.

    Raises:
        _PooledError: it is another one than the connection was told when it was opened.
    """
    answering: int = await driver.fetchval("SELECT pg_backend_pid()", timeout=_BOUND)
    if answering != driver.get_server_pid():
        raise _PooledError


def _back_off(failures: int) -> float:
    """Give the longest pause after that many failures in a row, in seconds."""
    return min(_LONGEST_BACK_OFF, _SHORTEST_BACK_OFF * 2.0 ** min(failures, _DOUBLED))
