"""A real PgBouncer in transaction pooling before a server that is reached through a socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from attrs import frozen
from sqlalchemy import URL

_PORT: Final = 6432
_PATIENCE: Final = 30.0

_CONFIGURATION: Final = """
[databases]
* = host={sockets} port={port}{on_connecting}

[pgbouncer]
unix_socket_dir = {place}
listen_port = {listen_port}
auth_type = trust
auth_file = {place}/users
logfile = {place}/log
pool_mode = transaction
default_pool_size = {backends}
max_client_conn = 1000
"""


@frozen
class PgBouncer:
    """Pool the transactions of clients, for any database of a server.

    Attributes:
        place: a directory of its own, with its socket.
    """

    place: Path

    @classmethod
    @contextmanager
    def before(
        cls, target: URL, *, users: Collection[str], backends: int, settings: Mapping[str, str] | None = None
    ) -> Iterator[Self]:
        """Run it as long as the block lasts.

        Args:
            target: names the sockets and the port of the server.
            users: roles that may connect.
            backends: connections to the server for each database and role; with fewer than a client has, a connection
                meets another backend each time.
            settings: what each backend has from its beginning; of a client that sends these with its start packet they
                are dropped, and without them it is refused.

        Raises:
            FileNotFoundError: there is no ``pgbouncer`` on the path.
        """
        command = shutil.which("pgbouncer")
        if command is None:
            raise FileNotFoundError("pgbouncer")
        place = Path(tempfile.mkdtemp(prefix="agentruns-test-", dir="/tmp"))
        try:
            configuration = _configured(place, target, users=users, backends=backends, settings=settings or {})
            process = subprocess.Popen([command, "-q", configuration])  # noqa: S603 - a program of the system
            try:
                _wait_until_ready(place, process)
                yield cls(place)
            finally:
                process.terminate()
                process.wait(timeout=_PATIENCE)
        finally:
            shutil.rmtree(place)

    def url(self, target: URL) -> URL:
        """Give the way to a database of the server through it."""
        return target.set(query={"host": str(self.place), "port": str(_PORT)})


def _configured(
    place: Path, target: URL, *, users: Collection[str], backends: int, settings: Mapping[str, str]
) -> Path:
    """Write its files; it runs as the account of the server, whose sockets nobody else may use."""
    sockets = str(target.query["host"])
    statements = "; ".join(f"SET {name} = ''{value}''" for name, value in settings.items())
    text = _CONFIGURATION.format(
        sockets=sockets,
        port=target.query["port"],
        on_connecting=f" connect_query='{statements}'" if settings else "",
        place=place,
        listen_port=_PORT,
        backends=backends,
    )
    if settings:
        text += f"ignore_startup_parameters = {','.join(settings)}\n"
    if os.geteuid() == 0:
        owner = pwd.getpwuid(Path(sockets).stat().st_uid)
        text += f"user = {owner.pw_name}\n"
        os.chown(place, owner.pw_uid, owner.pw_gid)
    (place / "users").write_text("".join(f'"{user}" ""\n' for user in users), encoding="utf-8")
    configuration = place / "pgbouncer.ini"
    configuration.write_text(text, encoding="utf-8")
    return configuration


def _wait_until_ready(place: Path, process: subprocess.Popen[bytes]) -> None:
    ends_at = time.monotonic() + _PATIENCE
    while not (place / f".s.PGSQL.{_PORT}").exists():
        log = place / "log"
        said = log.read_text(encoding="utf-8") if log.exists() else ""
        if process.poll() is not None or time.monotonic() > ends_at:
            raise RuntimeError(f"pgbouncer does not start: {said}")
        time.sleep(0.02)
