"""Answer an orchestrator's probes over HTTP."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from attrs import frozen

from agentruns.errors import InvalidOptionError
from agentruns.runtime.worker_health import WorkerHealth
from agentruns.store.options import check_count

_HIGHEST_PORT: Final = 65_535
#: Of a request, line and headers together. A probe sends some hundred.
_MAXIMUM_BYTES: Final = 8_192
#: Seconds that a connection may last.
PATIENCE: Final = 5.0
#: Beyond it the connection that was opened first is dropped: idle ones keep no probe out.
_MAXIMUM_CONNECTIONS: Final = 64

_END: Final = b"\r\n\r\n"
_REQUEST_LINE: Final = re.compile(rb"([A-Z]+) (/[!->@-~]*)(?:\?[!-~]*)? HTTP/1\.[01]\r\n")
_PHRASES: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}
_HEADERS: Final = "Cache-Control: no-store\r\nConnection: close\r\n"


@frozen
class _Response:
    code: int
    body: bytes = b""
    headers: str = ""

    def written(self, *, with_body: bool) -> bytes:
        kind = "Content-Type: application/json\r\n" if self.body else ""
        head = f"HTTP/1.1 {self.code} {_PHRASES[self.code]}\r\n{self.headers}{kind}Content-Length: {len(self.body)}\r\n"
        return f"{head}{_HEADERS}\r\n".encode("ascii") + (self.body if with_body else b"")


class HealthEndpoint:
    """Answer ``GET`` and ``HEAD`` of ``/live`` and ``/ready``, as long as the block lasts.

    Each is answered 200 or 503 with ``{"status": …}``: one of :class:`WorkerStatus`, and nothing else of the worker.
    ``/live`` is 503 when a new process would be better, ``/ready`` when the worker drives no runs now. It is served by
    the event loop of the block: where a node blocks that loop, no probe is answered.

    One request a connection, of at most 8 KiB and 5 seconds. It keeps no more than 64 connections, and drops the
    oldest for a new one.

    Args:
        health: asked at each request.
        host: the address that it listens on; by default only this machine reaches it.
        port: 0 for one that is free.
    """

    def __init__(self, health: Callable[[], WorkerHealth], *, port: int, host: str = "127.0.0.1") -> None:
        check_count("port", port, low=0, high=_HIGHEST_PORT)
        if not host:
            # For asyncio it would be every address of this machine.
            raise InvalidOptionError(option="host", value="''", bound="an address, such as 127.0.0.1 or 0.0.0.0")
        self._health = health
        self._host = host
        self._port = port
        #: In the order in which they were opened.
        self._connections: dict[_Connection, None] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            InvalidOptionError: ``cannot_listen``; somebody listens there already, or this process may not.
        """
        loop, code = asyncio.get_running_loop(), ""
        try:
            self._server = await loop.create_server(lambda: _Connection(self), self._host, self._port)
        except (socket.gaierror, UnicodeError):
            code = "unknown host"
        except OSError as error:
            # From Python 3.13 on an address that is not ours is passed over, and none being left has no number.
            code = errno.errorcode.get(error.errno or errno.EADDRNOTAVAIL, "unknown")
        if code:
            raise InvalidOptionError(
                option="health",
                reason="cannot_listen",
                value=f"{self._shown(self._port)} ({code})",
                bound="an address of this machine, and a port that nobody listens on",
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self._connections):
                connection.drop()
            await self._server.wait_closed()
            self._server = None

    @property
    def address(self) -> str:
        """``HOST:PORT`` where it listens now, with the port that was free."""
        port = self._port if self._server is None else int(self._server.sockets[0].getsockname()[1])
        return self._shown(port)

    def _shown(self, port: int) -> str:
        return f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"

    def opened(self, connection: _Connection) -> None:
        """Keep a connection, and drop the oldest where there are too many; it may be opened after the end, too."""
        self._connections[connection] = None
        if self._server is None or not self._server.is_serving():
            connection.drop()
        elif len(self._connections) > _MAXIMUM_CONNECTIONS:
            next(iter(self._connections)).drop()

    def closed(self, connection: _Connection) -> None:
        """Keep a connection no more."""
        self._connections.pop(connection, None)

    def answer(self, request: bytes) -> bytes:
        """Answer a whole request; what is none is refused without a word of it."""
        line = _REQUEST_LINE.match(request)
        if line is None:
            return _Response(400).written(with_body=True)
        method, path = line.groups()
        return self._response(path, is_read=method in (b"GET", b"HEAD")).written(with_body=method != b"HEAD")

    def _response(self, path: bytes, *, is_read: bool) -> _Response:
        if path not in (b"/live", b"/ready"):
            return _Response(404)
        if not is_read:
            return _Response(405, headers="Allow: GET, HEAD\r\n")
        health = self._health()
        is_well = health.is_live if path == b"/live" else health.is_ready
        return _Response(200 if is_well else 503, json.dumps({"status": health.status.value}).encode("ascii") + b"\n")


class _Connection(asyncio.Protocol):
    """Read one request, write its answer, and close."""

    def __init__(self, endpoint: HealthEndpoint) -> None:
        self._endpoint = endpoint
        self._received = bytearray()
        self._transport: asyncio.Transport
        self._limit: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a server makes
        self._transport = transport
        self._limit = asyncio.get_running_loop().call_later(PATIENCE, self.drop)
        self._endpoint.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        self._limit.cancel()
        self._endpoint.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        self._received += data
        if len(self._received) > _MAXIMUM_BYTES:
            self._close(_Response(431).written(with_body=True))
        elif _END in self._received:
            self._close(self._endpoint.answer(bytes(self._received)))

    def drop(self) -> None:
        """End the connection whatever is still to be read or written: a slow client holds nothing up."""
        self._endpoint.closed(self)
        self._transport.abort()

    def _close(self, answer: bytes) -> None:
        self._transport.write(answer)
        self._transport.close()
