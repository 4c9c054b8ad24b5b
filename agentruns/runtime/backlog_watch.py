"""Tell whoever records how much waits for workers. Where nobody does, nothing is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from agentruns.domain.scalars import TenantId
from agentruns.errors import AgentRunsError
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.retry import as_store_error
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.telemetry.counts import backlog_seen
from agentruns.runtime.telemetry.state import found

_log: Final = logging.getLogger("agentruns.runtime.backlog_watch")

#: Seconds between two looks.
_PAUSE: Final = 15.0


class BacklogWatch:
    """Measure the backlog of a worker's tenants now and then, as long as the block lasts.

    Args:
        tenants: whose runs; those of all tenants where none are given.
    """

    def __init__(
        self, store: AgentRunStore, executables: ExecutableGraphRegistry, tenants: Sequence[TenantId] | None
    ) -> None:
        self._store = store
        self._executables = executables
        self._tenants = tenants
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch(), name="agentruns:backlog")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            if found() is not None:
                await self._look()
            await asyncio.sleep(_PAUSE)

    async def _look(self) -> None:
        """Look once; a database that is away is told of by the claims."""
        digests = self._executables.graph_digests
        try:
            with as_store_error(self._store.options.schema):
                backlog_seen(await self._store.run_once(lambda work: work.discovery.backlog(self._tenants, digests)))
        except AgentRunsError as error:
            _log.debug("the backlog cannot be measured", extra={"error": type(error).__name__})
