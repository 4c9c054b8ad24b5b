"""A real PgBouncer in transaction pooling before the test's database, where it is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Connection, make_url

from agentruns.operations import grants

PORT = 6432
#: Fewer backends than a store has connections, so that a connection meets another one each time.
BACKENDS = 2

_CONFIGURATION = """
[databases]
* = host={sockets} port={port}

[pgbouncer]
unix_socket_dir = {place}
listen_port = {listen_port}
auth_type = trust
auth_file = {place}/users
logfile = {place}/log
pool_mode = transaction
default_pool_size = {backends}
"""


def _started(place: Path, target: URL) -> subprocess.Popen[bytes]:
    """Start it as the account of the server, whose sockets nobody else may use."""
    command = shutil.which("pgbouncer")
    if command is None:
        pytest.skip("there is no pgbouncer on the path")
    sockets, port = str(target.query["host"]), str(target.query["port"])
    owner = pwd.getpwuid(Path(sockets).stat().st_uid)
    configuration, users = place / "pgbouncer.ini", place / "users"
    text = _CONFIGURATION.format(sockets=sockets, port=port, place=place, listen_port=PORT, backends=BACKENDS)
    if os.geteuid() == 0:
        text += f"user = {owner.pw_name}\n"
        os.chown(place, owner.pw_uid, owner.pw_gid)
    configuration.write_text(text, encoding="utf-8")
    users.write_text(f'"{target.username}" ""\n', encoding="utf-8")
    return subprocess.Popen([command, "-q", configuration])  # noqa: S603 - a program of the system


def _wait_until_ready(place: Path, process: subprocess.Popen[bytes]) -> None:
    ends_at = time.monotonic() + 30
    while not (place / f".s.PGSQL.{PORT}").exists():
        log = place / "log"
        said = log.read_text(encoding="utf-8") if log.exists() else ""
        assert process.poll() is None, said
        assert time.monotonic() < ends_at, said
        time.sleep(0.02)


@pytest.fixture
def bare_pooled_url(
    database_url: str, owner_url: str, within: Callable[[str, Callable[[Connection], Any]], Any]
) -> Iterator[str]:
    """The database behind a pooler, for a role whose settings are its own, as one would name any database."""
    target = make_url(database_url)
    role = str(target.username)
    within(owner_url, lambda connection: grants.apply(connection, grants.GrantedRoles(runtime=role)))
    place = Path(tempfile.mkdtemp(prefix="agentruns-test-", dir="/tmp"))
    try:
        process = _started(place, target)
        try:
            _wait_until_ready(place, process)
            pooled = target.set(query={"host": str(place), "port": str(PORT)})
            yield pooled.render_as_string(hide_password=False)
        finally:
            process.terminate()
            process.wait(timeout=30)
    finally:
        shutil.rmtree(place)


@pytest.fixture
def pooled_url(bare_pooled_url: str) -> str:
    """The same, with the parameter that such a pooler needs."""
    return make_url(bare_pooled_url).update_query_dict({"statement_cache_size": "0"}).render_as_string(False)  # noqa: FBT003 - whether to hide the password
