"""Let a worker sleep until it may find something."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from types import TracebackType
from typing import Self

from sqlalchemy import URL

from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.listener import Listener, Subject
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.retry import as_store_error
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.wake_ups import ANY_TENANT, channel_of


class Idling:
    """Sleep until the next poll, and no longer than until something happens that a claim should follow.

    What happens while nobody sleeps ends the next sleep at once, so nothing is missed between a claim and a sleep.
    A worker that hears wake-ups polls rarely. It then asks what opens next, a deferred run or one whose lease expires,
    and sleeps no longer than until then. Nor does it sleep longer than a lease lives: so it sees every lease, whoever
    takes it, before it can expire.
    """

    def __init__(
        self,
        store: AgentRunStore,
        executables: ExecutableGraphRegistry,
        tenants: Sequence[TenantId] | None,
        options: AgentWorkerOptions,
    ) -> None:
        self._store = store
        self._executables = executables
        self._tenants = None if tenants is None else tuple(tenants)
        self._poll_interval = options.poll_interval
        self._longest = min(options.poll_interval_listening, store.options.lease_duration)
        self._has_news = asyncio.Event()
        self._looked_at: Timestamp | None = None
        self._heeded = None if tenants is None else frozenset((ANY_TENANT, *(tenant.text for tenant in tenants)))
        self._listener = self._listener_at(options.listen_url or store.options.listen_url) if options.listens else None
        self._stack = AsyncExitStack()

    def _listener_at(self, url: str | URL | None) -> Listener:
        subject = Subject(
            channel=channel_of(self._store.options.schema),
            lost="wake-ups do not arrive: the worker polls",
            regained="wake-ups arrive again",
        )
        return Listener(self._store, url, subject=subject, heard=self._heard, wake=self.wake)

    async def __aenter__(self) -> Self:
        if self._listener is not None:
            await self._stack.enter_async_context(self._listener)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def is_listening(self) -> bool:
        """Whether wake-ups arrive."""
        return self._listener is not None and self._listener.is_listening

    @property
    def trouble(self) -> str | None:
        """Say why wake-ups do not arrive although they should, or ``None``."""
        return None if self._listener is None else self._listener.trouble

    def _heard(self, tenant: str) -> None:
        """Wake for a tenant that is served here; of others it is told too."""
        if self._heeded is None or tenant in self._heeded:
            self.wake()

    def wake(self) -> None:
        """End this sleep, or the next one."""
        self._has_news.set()

    def look(self) -> None:
        """Begin a claim: what has happened so far is answered by it."""
        self._has_news.clear()
        clock = self._store.clock
        self._looked_at = clock.stamp() if clock.has_observation else None

    async def until_poll(self) -> timedelta:
        """Say how long to sleep after a claim that found no more.

        Raises:
            StoreError: the database, which is asked only where wake-ups are heard.
        """
        if not self.is_listening or self._looked_at is None:
            return self._poll_interval * _jitter()
        since, digests = self._looked_at, self._executables.graph_digests
        with as_store_error(self._store.options.schema):
            gate = await self._store.run_once(
                lambda work: work.gates.until_next(self._tenants, digests, since=since),
            )
        longest = self._longest * _jitter()
        return longest if gate is None else min(longest, gate)

    async def sleep(self, shutdown: ShutdownSignal, duration: timedelta | None) -> None:
        """Sleep so long, or without an end; less where something happens or a shutdown is asked for."""
        seconds = None if duration is None else duration.total_seconds()
        with shutdown.waking(self._has_news, stops=False):
            try:
                async with asyncio.timeout(seconds):
                    await self._has_news.wait()
            except TimeoutError:
                return


def _jitter() -> float:
    """Give a share of a pause, so that workers that started together do not poll together."""
    return random.uniform(0.5, 1.0)  # noqa: S311 - jitter, not a secret
