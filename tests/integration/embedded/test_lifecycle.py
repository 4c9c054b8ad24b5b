"""Starting, sharing, stopping, and what a crash leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psutil
import pytest
from sqlalchemy import URL

from agentruns.operations.embedded import EmbeddedServer
from agentruns.operations.embedded.directories import home_of

_USER = """
import sys
from agentruns.operations.embedded import EmbeddedServer
with EmbeddedServer(sys.argv[1], durable=False) as server:
    print(server.status().pid, flush=True)
    sys.stdin.readline()
"""


def ask(url: URL, question: str) -> object:
    async def once() -> object:
        host, port = str(url.query["host"]), int(str(url.query["port"]))
        connection = await asyncpg.connect(host=host, port=port, user=url.username, database=url.database)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()

    return asyncio.run(once())


def user_process(data_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - the test's own script
        [sys.executable, "-c", _USER, str(data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def pid_of(user: subprocess.Popen[str]) -> int:
    assert user.stdout is not None
    return int(user.stdout.readline())


def leave(user: subprocess.Popen[str]) -> None:
    user.communicate("\n", timeout=60)
    assert user.returncode == 0


def await_gone(pid: int) -> None:
    for _ in range(1500):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.02)
    pytest.fail(f"process {pid} is still there")


@pytest.mark.parametrize("major", [16, 17, 18])
def test_OPS_12_starts_answers_and_stops(place: Path, major: int) -> None:
    server = EmbeddedServer(place / "data", major=major, durable=False)
    with server:
        status = server.status()
        assert (status.is_running, status.major, status.is_durable, status.port) == (True, major, False, None)
        assert ask(server.url, "SELECT current_setting('server_version_num')::int / 10000") == major
        assert ask(server.url, "SHOW server_encoding") == "UTF8"
        assert ask(server.url, "SHOW listen_addresses") == ""
        assert stat.S_IMODE((place / "data").stat().st_mode) == 0o700
    assert server.status().is_running is False


@pytest.mark.parametrize("major", [16, 18])
def test_OPS_12_runs_for_a_plain_user(python_as_user: Callable[[str], str], major: int) -> None:
    script = f"""
import os, tempfile
from agentruns.operations.embedded import EmbeddedServer
with tempfile.TemporaryDirectory() as place:
    server = EmbeddedServer(place + "/data", major={major}, durable=False)
    with server:
        print(server.status().major, server.status().is_running, os.stat(place + "/data").st_uid == os.geteuid())
    print(server.status().is_running)
"""
    assert python_as_user(script) == f"{major} True True\nFalse\n"


@pytest.mark.parametrize("major", [16, 18])
def test_OPS_12_runs_from_a_path_of_200_bytes(place: Path, major: int) -> None:
    long = place / ("d" * (200 - len(str(place)) - 1))
    assert len(str(long)) == 200
    server = EmbeddedServer(long, major=major, durable=False)
    with server:
        assert ask(server.url, "SELECT 1") == 1
        sockets = server.status().socket_directory
        assert sockets is not None
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert not sockets.exists()


def test_OPS_12_starts_again_after_the_server_was_killed(place: Path) -> None:
    server = EmbeddedServer(place / "data", durable=False)
    pid = server.start().pid
    assert pid is not None
    ask(server.url, "CREATE TABLE kept AS SELECT 7 AS seven")
    ask(server.url, "CHECKPOINT")
    os.kill(pid, signal.SIGKILL)
    await_gone(pid)
    assert server.status().is_running is False
    again = server.start()
    assert again.pid != pid
    assert ask(server.url, "SELECT seven FROM kept") == 7
    assert server.stop() is True


def test_processes_share_one_server_and_the_last_stops_it(place: Path) -> None:
    users = [user_process(place / "data") for _ in range(4)]
    pids = {pid_of(user) for user in users}
    assert len(pids) == 1
    observer = EmbeddedServer(place / "data", durable=False)
    for user in users[:3]:
        leave(user)
        assert observer.status().is_running is True
    leave(users[3])
    assert observer.status().is_running is False


def test_a_killed_user_counts_no_longer(place: Path) -> None:
    user = user_process(place / "data")
    pid = pid_of(user)
    user.kill()
    user.communicate()
    server = EmbeddedServer(place / "data", durable=False)
    assert server.status().pid == pid
    with server:
        assert server.status().pid == pid
    assert server.status().is_running is False


def test_a_started_server_outlives_its_users_until_stopped(place: Path) -> None:
    server = EmbeddedServer(place / "data", durable=False)
    pid = server.start().pid
    assert server.start().pid == pid
    with server:
        assert server.status().pid == pid
    assert server.status().pid == pid
    assert server.stop() is True
    assert server.stop() is False
    with server:
        assert server.status().is_running is True
    assert server.status().is_running is False


def test_blocks_nest(place: Path) -> None:
    server = EmbeddedServer(place / "data", durable=False)
    with server:
        with server:
            pid = server.status().pid
        assert server.status().pid == pid
    assert server.status().is_running is False


def test_a_pid_that_somebody_else_has_got_is_never_signalled(place: Path) -> None:
    server = EmbeddedServer(place / "data", durable=False)
    with server:
        account = (place / "data").stat().st_uid
    cluster = home_of(place / "data", major=18).cluster
    bystander = subprocess.Popen(["/bin/sleep", "60"], user=account if os.geteuid() == 0 else None)
    try:
        pid_file = cluster / "postmaster.pid"
        started = int(psutil.Process(bystander.pid).create_time())
        pid_file.write_text(f"{bystander.pid}\n{cluster}\n{started}\n5432\n{place}\n\n  1 1\nready   \n")
        os.chown(pid_file, account, -1)
        assert server.status().is_running is False
        assert server.stop() is False
        assert bystander.poll() is None
        with server:
            assert server.status().pid != bystander.pid
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
