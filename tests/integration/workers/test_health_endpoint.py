"""Probes over HTTP, on real sockets: what each state answers, and clients that are slow, idle, many or no clients."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import define

from agentruns import HealthEndpoint, InvalidOptionError, WorkerHealth, WorkerStatus
from agentruns.runtime import health_endpoint

Run = Callable[[Any], Any]

READY = WorkerHealth(status=WorkerStatus.READY)
PATIENCE = 20.0


@define
class Ward:
    """An endpoint that listens, and what it says of its worker."""

    health: WorkerHealth = READY
    port: int = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def send(self, request: bytes) -> bytes:
        """Send bytes and read all that comes until the endpoint closes."""
        source, sink = await self.connect()
        sink.write(request)
        async with asyncio.timeout(PATIENCE):
            answer = await source.read()
        sink.close()
        return answer

    async def ask(self, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """Give status, headers and body of an answer."""
        answer = await self.send(f"{method} {path} HTTP/1.1\r\nHost: probe\r\nUser-Agent: kube-probe\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode("ascii").split("\r\n")
        version, code, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        return int(code), dict(line.split(": ", 1) for line in lines), body


@asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[Ward]:
    ward = Ward()
    async with HealthEndpoint(lambda: ward.health, port=port) as endpoint:
        host, _, found = endpoint.address.partition(":")
        assert host == "127.0.0.1"
        ward.port = int(found)
        yield ward


@pytest.mark.parametrize(
    ("status", "reason", "live", "ready"),
    [
        (WorkerStatus.STARTING, None, 200, 503),
        (WorkerStatus.READY, None, 200, 200),
        (WorkerStatus.DEGRADED, "node_threads_exhausted", 503, 200),
        (WorkerStatus.UNAVAILABLE, "store_unavailable", 200, 503),
        (WorkerStatus.DRAINING, None, 200, 503),
        (WorkerStatus.STOPPED, None, 503, 503),
    ],
)
def test_each_state_has_its_answers(run: Run, status: WorkerStatus, reason: str | None, live: int, ready: int) -> None:
    async def work() -> None:
        async with listening() as ward:
            ward.health = WorkerHealth(status=status, reason=reason)
            for path, code in (("/live", live), ("/ready", ready)):
                found, headers, body = await ward.ask(path)
                assert (found, json.loads(body)) == (code, {"status": status.value})
                assert headers == {
                    "Content-Type": "application/json",
                    "Content-Length": str(len(body)),
                    "Cache-Control": "no-store",
                    "Connection": "close",
                }

    run(work())


def test_HEAD_is_GET_without_the_body_and_a_query_is_passed_over(run: Run) -> None:
    async def work() -> None:
        async with listening() as ward:
            paths = ("/ready", "/ready?verbose=1")
            asked = [await ward.ask(path, method) for path in paths for method in ("GET", "HEAD")]
            body = b'{"status": "ready"}\n'
            assert [(code, content) for code, _, content in asked] == [(200, body), (200, b"")] * 2
            assert {headers["Content-Length"] for _, headers, _ in asked} == {str(len(body))}

    run(work())


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "/live", 405),
        ("DELETE", "/ready", 405),
        ("GET", "/", 404),
        ("GET", "/live/", 404),
        ("GET", "/metrics", 404),
        ("POST", "/other", 404),
        ("get", "/live", 400),
        ("GET", "live", 400),
        ("GET", "http://probe/live", 400),
    ],
)
def test_anything_else_is_refused(run: Run, method: str, path: str, code: int) -> None:
    async def work() -> None:
        async with listening() as ward:
            found, headers, body = await ward.ask(path, method)
            assert (found, body, headers["Content-Length"]) == (code, b"", "0")
            assert headers.get("Allow") == ("GET, HEAD" if code == 405 else None)

    run(work())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /live HTTP/2.0\r\n\r\n",
        b"GET /live\r\n\r\n",
        b"GET  /live HTTP/1.1\r\n\r\n",
        b"GET /liv\xe9 HTTP/1.1\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_the_next_one_is_answered(run: Run, garbage: bytes) -> None:
    async def work() -> None:
        async with listening() as ward:
            assert (await ward.send(garbage)).startswith(b"HTTP/1.1 400 Bad Request\r\n")
            assert (await ward.ask("/live"))[0] == 200

    run(work())


def test_a_request_in_pieces_is_answered_and_one_too_long_is_not(run: Run) -> None:
    async def work() -> None:
        async with listening() as ward:
            source, sink = await ward.connect()
            for piece in (b"GE", b"T /live HT", b"TP/1.0\r", b"\n\r", b"\n"):
                sink.write(piece)
                await sink.drain()
                await asyncio.sleep(0.01)
            assert (await source.read()).startswith(b"HTTP/1.1 200 OK\r\n")
            sink.close()
            start = b"GET /live HTTP/1.1\r\nX: "
            fits = start + b"x" * (8192 - len(start) - 4) + b"\r\n\r\n"
            assert (len(fits), (await ward.send(fits))[:12]) == (8192, b"HTTP/1.1 200")
            assert (await ward.send(start + b"x" * (8193 - len(start))))[:12] == b"HTTP/1.1 431"

    run(work())


def test_a_slow_client_is_dropped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_endpoint, "PATIENCE", 0.3)

    async def work() -> None:
        async with listening() as ward:
            source, sink = await ward.connect()
            sink.write(b"GET /live HT")
            async with asyncio.timeout(PATIENCE):
                assert await source.read() == b""
            sink.close()

    run(work())


def is_open(source: asyncio.StreamReader) -> bool:
    return not source.at_eof() and source.exception() is None


def test_five_hundred_idle_connections_keep_no_probe_out(run: Run) -> None:
    async def work() -> None:
        async with listening() as ward:
            idle = []
            for _ in range(500):
                idle.append(await ward.connect())
                if len(idle) % 100 == 0:
                    async with asyncio.timeout(PATIENCE):
                        assert (await ward.ask("/ready"))[0] == 200
            # The newest are kept, as many as there may be besides the last probe, which has gone.
            async with asyncio.timeout(PATIENCE):
                while (kept := [source for source, _ in idle if is_open(source)]) != [
                    source for source, _ in idle[-63:]
                ]:
                    await asyncio.sleep(0.01)
            assert len(kept) == 63
            for _, sink in idle:
                sink.close()

    run(work())


def test_five_hundred_probes_at_once_are_answered_or_dropped_and_the_next_is_answered(run: Run) -> None:
    async def work() -> None:
        async with listening() as ward:
            asked = await asyncio.gather(*(ward.ask("/live") for _ in range(500)), return_exceptions=True)
            answers = [each for each in asked if isinstance(each, tuple)]
            assert {code for code, _, _ in answers} == {200}
            assert (await ward.ask("/live"))[0] == 200

    run(work())


def test_the_end_waits_for_nobody_and_nothing_listens_afterwards(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_endpoint, "PATIENCE", 3600.0)

    async def work() -> None:
        async with asyncio.timeout(PATIENCE):
            async with listening() as ward:
                opened = [await ward.connect() for _ in range(20)]
                opened[0][1].write(b"GET /live")
                assert (await ward.ask("/live"))[0] == 200
            for source, sink in opened:
                assert await asyncio.gather(source.read(), return_exceptions=True)
                sink.close()
        with pytest.raises(ConnectionRefusedError):
            await ward.connect()

    run(work())


def test_a_port_in_use_is_a_clear_error_and_the_port_can_be_used_again(run: Run) -> None:
    async def work() -> None:
        async with listening() as ward:
            with pytest.raises(InvalidOptionError) as refused:
                async with listening(ward.port):
                    pass
        error = refused.value
        assert (error.option, error.reason, error.value) == (
            "health",
            "cannot_listen",
            f"127.0.0.1:{ward.port} (EADDRINUSE)",
        )
        assert (error.__cause__, error.__context__) == (None, None)
        async with listening(ward.port) as again:
            assert (await again.ask("/live"))[0] == 200

    run(work())


@pytest.mark.parametrize(
    ("host", "code"),
    [("203.0.113.77", "EADDRNOTAVAIL"), ("no.such.host.invalid", "unknown host"), ("x" * 70, "unknown host")],
)
def test_an_address_that_is_not_ours(run: Run, host: str, code: str) -> None:
    async def work() -> None:
        with pytest.raises(InvalidOptionError) as refused:
            async with HealthEndpoint(lambda: READY, port=0, host=host):
                pass
        assert refused.value.value == f"{host}:0 ({code})"

    run(work())


@pytest.mark.parametrize(
    ("options", "option"),
    [({"port": -1}, "port"), ({"port": 65536}, "port"), ({"port": True}, "port"), ({"port": 1, "host": ""}, "host")],
)
def test_options_have_bounds(options: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        HealthEndpoint(lambda: READY, **options)
    assert refused.value.option == option


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_an_address_of_version_6_is_written_in_brackets(run: Run) -> None:
    async def work() -> None:
        try:
            async with HealthEndpoint(lambda: READY, port=0, host="::1") as endpoint:
                assert endpoint.address.startswith("[::1]:")
        except InvalidOptionError:
            pytest.skip("this machine has no address of version 6")

    run(work())
