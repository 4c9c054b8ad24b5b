"""Procrastinate: defer a task with its asynchronous connector."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from attrs import frozen

from agentruns.domain.canonical import JsonTree
from benchmarks.peers.dbos_client import url_of
from benchmarks.place import Place


@frozen
class Procrastinate:
    """A task of an open application; no worker runs, so nothing executes what is deferred."""

    task: Any

    async def defer(self, ordered: dict[str, JsonTree]) -> None:
        """Defer a job: one statement and one commit."""
        assert await self.task.defer_async(ordered=ordered) > 0


@asynccontextmanager
async def opened(place: Place, *, callers: int) -> AsyncIterator[Procrastinate]:
    """Make its tables beside the other peers', and open its application with a connection for each caller."""
    from procrastinate import App, PsycopgConnector  # noqa: PLC0415 - only who measures it needs it

    app: Any = App(connector=PsycopgConnector(conninfo=url_of(place), min_size=callers, max_size=callers))

    @app.task(queue="orders", name="fulfil")  # type: ignore[untyped-decorator]  # the peer need not be there
    async def fulfil(ordered: dict[str, Any]) -> None:
        """Fulfil an order."""

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield Procrastinate(fulfil)
