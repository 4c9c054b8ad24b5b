"""Each bad input: its exit code, one sentence that says what to do, nothing private, nothing left behind."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from agentruns.operations.embedded import cluster
from agentruns.operations.embedded.account import server_account
from agentruns.operations.embedded.binaries import Binaries
from agentruns.operations.embedded.directories import Home, prepare
from agentruns.operations.embedded.process import stop_process

Command = Callable[..., Any]
OLD = Path("/usr/lib/postgresql/15")


def refused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def the_error(ended: Any) -> dict[str, object]:
    """Read the one object that a command wrote as its failure."""
    assert ended.out == ""
    error: dict[str, object] = json.loads(ended.err)["error"]
    return error


@pytest.fixture
def old_server(place: Path) -> Iterator[URL]:
    """A real PostgreSQL 15."""
    if not (OLD / "bin" / "postgres").is_file():
        pytest.skip("no PostgreSQL 15 is installed here")
    home = Home(path=place / "old")
    account = server_account(home.path, run_as=None)
    prepare(home, account)
    binaries = Binaries(major=15, root=OLD, label="old")
    cluster.make_cluster(home, account, binaries, durable=False)
    postmaster = cluster.start_cluster(home, account, binaries, port=None, durable=False)
    query = {"host": str(postmaster.socket_directory), "port": str(postmaster.port)}
    yield URL.create("postgresql", username="agentruns", database="postgres", query=query)
    stop_process(postmaster)
    shutil.rmtree(home.path)


COMMANDS = [
    ("db", "verify"),
    ("db", "current"),
    ("db", "history"),
    ("db", "upgrade"),
    ("runs", "list", "--tenant", "t"),
    ("runs", "show", "t", "01890000-0000-7000-8000-000000000000"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_OPS_11_no_such_server(agentruns: Command, arguments: tuple[str, ...]) -> None:
    url = f"postgresql://somebody:planted-secret@127.0.0.1:{refused_port()}/planted"
    ended = agentruns(*arguments, "--format", "json", "--quiet", url=url)
    error = the_error(ended)
    assert (ended.code, error["code"], error["retryable"]) == (7, "store_unavailable", True)
    assert "planted" not in str(ended)


@pytest.mark.parametrize("url", ["mysql://u:planted@h/d", "planted", "postgresql://u:planted@h:port/d", "://planted"])
def test_OPS_11_no_url_for_postgresql(agentruns: Command, url: str) -> None:
    ended = agentruns("db", "verify", url=url)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "planted" not in ended.err


def test_OPS_11_an_option_of_the_url_that_the_driver_does_not_know(agentruns: Command) -> None:
    ended = agentruns("db", "verify", url="postgresql://u:planted@127.0.0.1/d?nonsense=planted")
    assert ended.code == 2
    assert "planted" not in ended.err


def test_a_database_that_does_not_exist(agentruns: Command, empty_database_url: str) -> None:
    url = make_url(empty_database_url).set(database="nosuch").render_as_string()
    ended = agentruns("db", "verify", url=url)
    assert (ended.code, ended.out) == (7, "")
    assert ended.err == (
        "Error: The database does not exist (sqlstate=3D000): create it, or correct its name in the URL\n"
    )


def test_a_login_that_is_refused(agentruns: Command, empty_database_url: str) -> None:
    url = make_url(empty_database_url).set(username="nosuch").render_as_string()
    ended = agentruns("db", "verify", url=url)
    assert ended.code == 7
    assert ended.err == (
        "Error: The database refuses the login (sqlstate=28000): correct the user or password in the URL\n"
    )


@pytest.mark.parametrize("arguments", [command for command in COMMANDS if "upgrade" not in command], ids=" ".join)
def test_an_unmigrated_database(agentruns: Command, empty_database_url: str, arguments: tuple[str, ...]) -> None:
    ended = agentruns(*arguments, "--quiet", url=empty_database_url)
    assert (ended.code, ended.out) == (6, "")
    assert ended.err == (
        "Error: The schema has not been migrated (reason=not_migrated, schema=agentruns): run `agentruns db upgrade`\n"
    )


def test_another_schema_than_the_migrated_one(agentruns: Command, database_url: str) -> None:
    ended = agentruns("db", "verify", "--schema", "other", url=database_url)
    assert ended.code == 6
    assert "found=tables in schema agentruns" in ended.err


@pytest.mark.parametrize("schema", ["public", "pg_x", 'a"b', "A"])
def test_a_bad_schema_name(agentruns: Command, database_url: str, schema: str) -> None:
    ended = agentruns("db", "upgrade", "--schema", schema, url=database_url)
    assert (ended.code, ended.out) == (2, "")


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_an_old_server(agentruns: Command, old_server: URL, arguments: tuple[str, ...]) -> None:
    ended = agentruns(*arguments, "--format", "json", "--quiet", url=old_server.render_as_string())
    error = the_error(ended)
    assert (ended.code, error["code"]) == (6, "schema_verification.unsupported_server")
    assert error["action"] == "use 16, 17 or 18 with UTF8 encoding"


def test_an_unknown_run(agentruns: Command, database_url: str) -> None:
    run = "01890000-0000-7000-8000-000000000000"
    ended = agentruns("runs", "show", "t", run, "--format", "json", url=database_url)
    error = the_error(ended)
    assert (ended.code, error["code"], error["id"]) == (3, "run_not_found", run)


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs", "show", "t", "nonsense"),
        ("runs", "show", "no tenant", "01890000-0000-7000-8000-000000000000"),
        ("runs", "list", "--tenant", ".."),
        ("runs", "list"),
        ("runs", "list", "--tenant", "t", "--status", "pending"),
        ("runs", "list", "--tenant", "t", "--after", "nonsense"),
        ("db", "upgrade", "--to", "17"),
        ("db", "downgrade"),
        ("server", "start", "--major", "15"),
        ("server", "start", "--port", "0"),
        ("--database-url-file", "/nonexistent/url", "db", "verify"),
    ],
    ids=" ".join,
)
def test_wrong_usage(agentruns: Command, database_url: str, arguments: tuple[str, ...]) -> None:
    ended = agentruns(*arguments, url=database_url)
    assert (ended.code, ended.out) == (2, "")
    assert "Error: " in ended.err


def test_no_embedded_server_is_running(agentruns: Command, place: Path) -> None:
    ended = agentruns("server", "url")
    assert ended.code == 7
    assert ended.err == (
        f"Error: No embedded PostgreSQL is running (reason=embedded_stopped, detail={place}/data): "
        "run `agentruns server start`\n"
    )
    assert not (place / "data").exists()


def test_data_of_another_version(agentruns: Command, place: Path) -> None:
    (place / "data").mkdir()
    (place / "data" / "PG_VERSION").write_text("15\n")
    ended = agentruns("server", "start", "--format", "json", "--quiet")
    assert (ended.code, the_error(ended)["code"]) == (4, "deployment.embedded_version")
    assert [path.name for path in (place / "data").iterdir()] == ["PG_VERSION"]
