"""Stand between a client and a server as a pooler of transactions does, where it matters to whoever would listen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from attrs import define, field
from sqlalchemy import make_url

_CHUNK: Final = 64 * 1024
#: A message with the key for cancelling: its kind, its length, then a process number.
_KEY_DATA: Final = b"K\x00\x00\x00\x0c"
_NUMBER: Final = 4


@define(eq=False)
class Pooler:
    """Tell every client a process number that is no backend's, and pass on the rest.

    Attributes:
        url: what a client connects to.
        texts: what clients have sent.
    """

    url: str = ""
    texts: list[bytes] = field(factory=list)
    _socket: str = field(kw_only=True)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)

    @classmethod
    @asynccontextmanager
    async def before(cls, url: str) -> AsyncIterator[Pooler]:
        """Stand before the server of ``url``, which is reached through a socket."""
        target = make_url(url)
        pooler = cls(socket=f"{target.query['host']}/.s.PGSQL.{target.query['port']}")
        listening = await asyncio.start_server(pooler._serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        pooler.url = target.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
        try:
            yield pooler
        finally:
            listening.close()
            for task in pooler._tasks:
                task.cancel()
            await asyncio.gather(*pooler._tasks, return_exceptions=True)

    async def _serve(self, client_in: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        server_in, server = await asyncio.open_unix_connection(self._socket)
        both = [self._pass(client_in, server, is_client=True), self._pass(server_in, client, is_client=False)]
        for each in both:
            task = asyncio.create_task(each)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_client: bool) -> None:
        with suppress(ConnectionError):
            while data := await source.read(_CHUNK):
                if is_client:
                    self.texts.append(data)
                elif _KEY_DATA in data:
                    before, _, after = data.partition(_KEY_DATA)
                    data = before + _KEY_DATA + bytes(_NUMBER) + after[_NUMBER:]
                target.write(data)
                await target.drain()
        target.transport.abort()
