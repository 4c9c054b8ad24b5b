"""DBOS: enqueue a workflow under an id of the caller's, and read its status, with its own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from attrs import define, field, frozen
from sqlalchemy import URL

from agentruns.domain.canonical import JsonTree
from benchmarks.place import PEER, Place
from benchmarks.workload import order

if TYPE_CHECKING:
    from dbos import DBOSClient

_QUEUE: Final = "orders"
_WORKFLOW: Final = "fulfil"


@frozen(kw_only=True)
class Enqueued:
    """An order, and the id under which it is enqueued: a second call with it finds the first."""

    workflow_id: str
    order: dict[str, JsonTree]


@define(kw_only=True)
class Dbos:
    """A client with as many connections as there are callers, and the handles that it has given."""

    client: DBOSClient
    _handles: dict[str, Any] = field(factory=dict)

    def orders(self, numbers: Iterable[int]) -> list[Enqueued]:
        """Build what is enqueued: the inputs that our submissions have."""
        return [Enqueued(workflow_id=str(uuid4()), order=order(number)) for number in numbers]

    def enqueue(self, work: Enqueued) -> None:
        """Enqueue, from a thread."""
        handle = self.client.enqueue(_options(work), work.order)
        assert handle.get_workflow_id() == work.workflow_id
        self._handles[work.workflow_id] = handle

    async def enqueue_async(self, work: Enqueued) -> None:
        """Enqueue, from the event loop."""
        handle = await self.client.enqueue_async(_options(work), work.order)
        assert handle.get_workflow_id() == work.workflow_id
        self._handles[work.workflow_id] = handle

    def status(self, work: Enqueued) -> None:
        """Read the status of what was enqueued from a thread, from a thread."""
        assert self._handles[work.workflow_id].get_status().status == "ENQUEUED"

    async def status_async(self, work: Enqueued) -> None:
        """Read the status of what was enqueued from the event loop, from the event loop."""
        assert (await self._handles[work.workflow_id].get_status()).status == "ENQUEUED"

    def enqueue_and_read(self, work: Enqueued) -> None:
        """Enqueue, and read the status of what stands under the id, from a thread."""
        self.enqueue(work)
        self.status(work)

    async def enqueue_and_read_async(self, work: Enqueued) -> None:
        """Enqueue, and read the status of what stands under the id, from the event loop."""
        await self.enqueue_async(work)
        await self.status_async(work)


@asynccontextmanager
async def opened(place: Place, *, callers: int) -> AsyncIterator[Dbos]:
    """Make its tables in a database of its own, and open its client.

    Nothing executes what is enqueued, nothing is traced and nobody else is told: a client has no background thread, and
    the instance that makes the tables ends at once. Its asynchronous calls run in the event loop's threads, of which
    there is one for each caller.
    """
    from dbos import DBOS, DBOSClient  # noqa: PLC0415 - only who measures it needs it

    url = url_of(place)
    DBOS(config={"name": _QUEUE, "system_database_url": url, "enable_otlp": False, "log_level": "ERROR"})
    DBOS.listen_queues([])
    DBOS.launch()
    DBOS.destroy()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(callers))
    client = await asyncio.to_thread(
        lambda: DBOSClient(system_database_url=url, system_database_pool_size=callers, application_name=_QUEUE)
    )
    try:
        await client.register_queue_async(_QUEUE)
        yield Dbos(client=client)
    finally:
        client.destroy()


def _options(work: Enqueued) -> Any:
    return {"queue_name": _QUEUE, "workflow_name": _WORKFLOW, "workflow_id": work.workflow_id}


def url_of(place: Place) -> str:
    """Give the address of the peers' database as libpq reads it."""
    target: URL = place.url(PEER).set(drivername="postgresql")
    return target.render_as_string(hide_password=False)
