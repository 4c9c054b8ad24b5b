from __future__ import annotations

import builtins
import io
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.schema import JsonSchemaRegistryBuilder
from agentruns.errors import DefinitionError, SchemaRejectedError

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def forbidden(*_: Any, **__: Any) -> Any:
    raise AssertionError("a file or a socket was opened")


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in (
        (socket, "socket"),
        (socket, "create_connection"),
        (socket, "getaddrinfo"),
        (builtins, "open"),
        (io, "open"),
        (os, "open"),
    ):
        monkeypatch.setattr(owner, name, forbidden)


@pytest.mark.usefixtures("sealed")
def test_K8_building_and_validating_open_nothing() -> None:
    builder = JsonSchemaRegistryBuilder()
    tree: dict[str, Any] = {
        "$schema": DIALECT,
        "$id": "https://example.org/a",
        "properties": {"schema": {"$ref": DIALECT}, "at": {"format": "date-time"}, "host": {"format": "idn-hostname"}},
    }
    reference = builder.add(tree, "1.0.0")
    schemas = builder.build()
    schemas.validate(reference, BoundedJson.of({"schema": {"type": "string"}, "host": "a.example"}, JsonLimits.DEFAULT))
    with pytest.raises(SchemaRejectedError):
        schemas.validate(reference, BoundedJson.of({"at": "nope"}, JsonLimits.DEFAULT))


@pytest.mark.usefixtures("sealed")
@pytest.mark.parametrize(
    "target",
    ["https://example.org/b", "http://127.0.0.1/b", "file:///etc/hostname", "urn:b", "http://json-schema.org/x"],
)
def test_an_unknown_reference_opens_nothing(target: str) -> None:
    builder = JsonSchemaRegistryBuilder()
    builder.add({"$schema": DIALECT, "$id": "https://example.org/a", "$ref": target}, "1.0.0")
    with pytest.raises(DefinitionError) as caught:
        builder.build()
    assert caught.value.reason == "unresolved_reference"


@contextmanager
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """Listen on a local port and record what anybody sends."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        stop = threading.Event()

        def accept() -> None:
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                received.append(connection.recv(1_024))
                connection.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1], received
        finally:
            stop.set()
            thread.join()


def test_K8_a_listening_server_gets_no_request_and_the_build_is_refused() -> None:
    with listener() as (port, received):
        builder = JsonSchemaRegistryBuilder()
        target = f"http://127.0.0.1:{port}/schema.json"
        builder.add({"$schema": DIALECT, "$id": "https://example.org/a", "items": {"$ref": target}}, "1.0.0")
        with pytest.raises(DefinitionError) as caught:
            builder.build()
        assert caught.value.reason == "unresolved_reference"
        assert caught.value.findings == ("unresolved_reference at https://example.org/a#/items/$ref",)
    assert received == []
