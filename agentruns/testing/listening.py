"""Hear what workers and waiting calls are told, as one of them would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from attrs import define, field
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.runtime.store import AgentRunStore
from agentruns.store.wake_ups import channel_of, ends_channel_of

_PATIENCE: Final = 30.0


async def all_told(store: AgentRunStore) -> None:
    """Return once a store has told of everything that has been committed so far.

    Raises:
        TimeoutError: it does not come to that.
    """
    async with asyncio.timeout(_PATIENCE):
        while store.notifier._sending is not None:  # noqa: ASYNC110, SLF001  # another task sends
            await asyncio.sleep(0.005)


@define
class Ear:
    """Keep what was heard.

    Attributes:
        payloads: in their order.
    """

    payloads: list[str] = field(factory=list)

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str, *, schema: str = "agentruns", is_for_ends: bool = False) -> AsyncIterator[Ear]:
        """Listen on a channel of a schema in the database of ``url``: the workers', or that for ends of runs."""
        ear, channel = cls(), ends_channel_of(schema) if is_for_ends else channel_of(schema)
        engine = create_async_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                driver: Any = (await connection.get_raw_connection()).driver_connection
                await driver.add_listener(channel, ear._hear)
                yield ear
                await driver.remove_listener(channel, ear._hear)
        finally:
            await engine.dispose()

    def _hear(self, _connection: object, _process: int, _channel: str, payload: str) -> None:
        self.payloads.append(payload)

    async def hears(self, count: int) -> list[str]:
        """Give what was heard once there is so much of it.

        Raises:
            TimeoutError: it does not come.
        """
        async with asyncio.timeout(_PATIENCE):
            while len(self.payloads) < count:  # noqa: ASYNC110  # the server tells
                await asyncio.sleep(0.005)
        return list(self.payloads)
