"""Break the wire between a store and its server on purpose: lose an answer, hold a statement back, take it down.

:class:`DoomedProcess`, which a test kills, and :class:`DeathAt`, by which a process kills itself where no test could
hit it, come from here, too. Nothing of it needs pytest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from attrs import define, field
from sqlalchemy import URL, make_url

from agentruns.testing.killing import DeathAt, DoomedProcess

__all__ = ["DeathAt", "DoomedProcess", "HeldStatement", "WireProxy"]

_CHUNK: Final = 64 * 1024
#: A needle may be cut by two reads; so much of the one before is looked at again.
_LONGEST_NEEDLE: Final = 256
_READY_FOR_QUERY: Final = ord("Z")
_HEADER: Final = 5


def _check_needle(_instance: object, _attribute: object, needle: bytes) -> None:
    if not 1 <= len(needle) <= _LONGEST_NEEDLE:
        raise ValueError(f"a needle has 1 to {_LONGEST_NEEDLE} bytes")


@define
class HeldStatement:
    """A statement that is kept from the server until it is let go, although its client may be gone by then.

    Wait for ``arrived``, do what is to happen meanwhile, and let it go; closing the proxy lets everything go.

    Attributes:
        needle: what its bytes hold.
        arrived: set once it is here.
        released: set once it may go on.
    """

    needle: bytes = field(validator=_check_needle)
    arrived: asyncio.Event = field(factory=asyncio.Event)
    released: asyncio.Event = field(factory=asyncio.Event)

    def let_go(self) -> None:
        """Let the statement through."""
        self.released.set()


@define(eq=False)
class _Wire:
    """One client and the connection to the server that was opened for it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    loses_answer: bool = False
    sent: bytes = b""

    def shows(self, needle: bytes, data: bytes) -> bool:
        """Whether a needle ends in what is sent now; it may have begun in what was sent before."""
        begun = len(self.sent) - (len(needle) - 1)
        return needle in self.sent[max(begun, 0) :] + data

    def note(self, data: bytes) -> None:
        """Keep the end of what was sent."""
        self.sent = (self.sent + data)[1 - _LONGEST_NEEDLE :]

    def cut(self) -> None:
        """Drop both sides at once."""
        for side in (self.client, self.server):
            side.transport.abort()


@define
class WireProxy:
    """Stand between a store and its server, on a port of this machine's loopback address, without encryption.

    A fault is armed with bytes, and meets the next statement that has them, on whatever connection. Choose bytes of
    its parameters, such as an event's kind or an attempt's id: the text of a prepared statement is sent only once.
    Each armed fault happens once; two with the same bytes happen one after the other.

    Use one proxy in one event loop, which may be another one than the store's.

    Attributes:
        url: what the store connects to.
        lost: how many answers were lost.
    """

    url: str = ""
    lost: int = 0
    _target: URL = field(kw_only=True)
    _is_down: bool = field(default=False, init=False)
    _losses: list[bytes] = field(factory=list, init=False)
    _awaited: list[HeldStatement] = field(factory=list, init=False)
    _held: list[HeldStatement] = field(factory=list, init=False)
    _wires: set[_Wire] = field(factory=set, init=False)
    _serving: set[asyncio.Task[None]] = field(factory=set, init=False)

    @classmethod
    @asynccontextmanager
    async def before(cls, url: str | URL) -> AsyncIterator[WireProxy]:
        """Open a proxy before the server of ``url``, and close it with everything that passes it.

        Args:
            url: of a database, on a socket or a port; user, password and database stay as they are.
        """
        target = make_url(url)
        proxy = cls(target=target)
        listening = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        proxy.url = target.set(host="127.0.0.1", port=port, query={}).render_as_string(hide_password=False)
        try:
            yield proxy
        finally:
            listening.close()
            proxy.take_down()
            for held in proxy._held:
                held.let_go()
            await asyncio.gather(*proxy._serving, return_exceptions=True)

    def lose_answer(self, needle: bytes) -> None:
        """Let the next statement with these bytes reach the server and commit there; its answer never arrives.

        The connection is cut once the server has answered, so the client cannot know what has happened.
        """
        _check_needle(self, None, needle)
        self._losses.append(needle)

    def hold(self, needle: bytes) -> HeldStatement:
        """Keep the next statement with these bytes from the server until :meth:`HeldStatement.let_go`."""
        held = HeldStatement(needle)
        self._awaited.append(held)
        self._held.append(held)
        return held

    def take_down(self) -> None:
        """Cut every connection, and every one that is tried until :meth:`bring_up`."""
        self._is_down = True
        for wire in list(self._wires):
            wire.cut()

    def bring_up(self) -> None:
        """Let connections through again."""
        self._is_down = False

    async def _serve(self, client_in: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        if self._lets_nobody_through():
            client.transport.abort()
            return
        server_in, server = await self._connect()
        wire = _Wire(client, server)
        if self._lets_nobody_through():  # taken down meanwhile
            wire.cut()
            return
        self._wires.add(wire)
        try:
            await asyncio.gather(self._to_server(client_in, wire), self._to_client(server_in, wire))
        finally:
            self._wires.discard(wire)
            wire.cut()

    def _lets_nobody_through(self) -> bool:
        return self._is_down

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host = str(self._target.query.get("host") or self._target.host)
        port = int(str(self._target.query.get("port") or self._target.port))
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _to_server(self, source: asyncio.StreamReader, wire: _Wire) -> None:
        with suppress(ConnectionError):
            while data := await source.read(_CHUNK):
                await self._meet_faults(data, wire)
                wire.note(data)
                wire.server.write(data)
                await wire.server.drain()
        wire.cut()

    async def _meet_faults(self, data: bytes, wire: _Wire) -> None:
        for needle in [each for each in self._losses if wire.shows(each, data)][:1]:
            self._losses.remove(needle)
            wire.loses_answer = True
        for held in [each for each in self._awaited if wire.shows(each.needle, data)][:1]:
            self._awaited.remove(held)
            held.arrived.set()
            await held.released.wait()

    async def _to_client(self, source: asyncio.StreamReader, wire: _Wire) -> None:
        with suppress(ConnectionError):
            while data := await source.read(_CHUNK):
                if wire.loses_answer:
                    await self._swallow(data, source)
                    break
                wire.client.write(data)
                await wire.client.drain()
        wire.cut()

    async def _swallow(self, data: bytes, source: asyncio.StreamReader) -> None:
        """Read on until the server says that it is ready again: then what was sent has committed."""
        while not _ends_an_answer(data) and (more := await source.read(_CHUNK)):
            data += more
        self.lost += 1


def _ends_an_answer(data: bytes) -> bool:
    """Tell whether the server has said among its messages that it is ready."""
    place = 0
    while place + _HEADER <= len(data):
        kind, length = data[place], int.from_bytes(data[place + 1 : place + _HEADER])
        place += 1 + length
        if kind == _READY_FOR_QUERY and place <= len(data):
            return True
    return False
