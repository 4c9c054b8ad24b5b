"""Verify the schema beside a worker again and again, and drain the worker when it is broken."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from agentruns.errors import AgentRunsError, SchemaVerificationError
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.verification.verify import verify_schema_again

_log: Final = logging.getLogger("agentruns.runtime.schema_watch")


class SchemaWatch:
    """Verify as long as the block lasts; without an interval nothing is done.

    A store verifies when it is opened, so the first time is an interval later. What is wrong with the schema drains the
    worker, and leaving the block raises it. That the database cannot be asked says nothing of the schema: the next time
    it is asked again.
    """

    def __init__(self, store: AgentRunStore, shutdown: ShutdownSignal, *, interval: timedelta | None) -> None:
        self._store = store
        self._shutdown = shutdown
        self._interval = interval
        self._task: asyncio.Task[SchemaVerificationError] | None = None

    async def __aenter__(self) -> Self:
        if self._interval is not None:
            looking = self._look(self._interval.total_seconds())
            self._task = asyncio.create_task(looking, name="agentruns:schema_watch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is None:
            return
        self._task.cancel()
        (found,) = await asyncio.gather(self._task, return_exceptions=True)
        if error is None and isinstance(found, Exception):
            raise found

    async def _look(self, seconds: float) -> SchemaVerificationError:
        """Return what is wrong with the schema, once it is, and let the worker end."""
        is_failing = False
        while True:
            # Jittered, so that many processes that started together do not ask together.
            await asyncio.sleep(seconds * random.uniform(0.75, 1.0))  # noqa: S311 - jitter, not a secret
            try:
                await self._store.read(self._verify)
                is_failing = False
            except SchemaVerificationError as error:
                message = "the schema is no longer what this release needs: the worker drains"
                _log.warning(message, extra={"reason": error.reason})
                self._shutdown.drain()
                return error
            except AgentRunsError as error:
                if not is_failing:
                    _log.warning("the schema cannot be verified now", extra={"error": type(error).__name__})
                is_failing = True

    def _verify(self, work: UnitOfWork) -> None:
        verify_schema_again(work.connection, schema=self._store.options.schema)
