"""A real PostgreSQL from a wheel, private to one account, for the first try and for tests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from attrs import frozen
from sqlalchemy import URL

from agentruns.errors import DeploymentError, InvalidOptionError
from agentruns.operations.embedded import cluster, directories
from agentruns.operations.embedded.account import Account, server_account
from agentruns.operations.embedded.binaries import find_binaries, usable_by
from agentruns.operations.embedded.locks import Handle, one_at_a_time
from agentruns.operations.embedded.process import Postmaster, find_postmaster, stop_process

MAJORS: Final = (16, 17, 18)
DEFAULT_MAJOR: Final = 18
_LOCK_SECONDS: Final = 180.0


@frozen(kw_only=True)
class ServerStatus:
    """Describe an embedded server as it is now.

    Attributes:
        major: the version that made the data; of a directory without data, the one asked for.
        data_dir: the data directory.
        is_running: whether a server was recognised in it.
        is_durable: ``False`` once a server without durability has run in the directory; a worker refuses it.
        pid: the server's process.
        account: who the directory belongs to.
        socket_directory: where its socket is.
        port: the port on 127.0.0.1, where one was asked for.
        password_file: holds the password for that port.
    """

    major: int
    data_dir: Path
    is_running: bool
    is_durable: bool
    account: str
    pid: int | None = None
    socket_directory: Path | None = None
    port: int | None = None
    password_file: Path | None = None


class EmbeddedServer:
    """Start, share and stop a PostgreSQL server that nobody but its account and root can reach.

    As a context manager it is shared: the server stops when the last user's block ends, in whichever process, unless
    :meth:`start` was called, which keeps it until :meth:`stop`.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        major: int = DEFAULT_MAJOR,
        port: int | None = None,
        durable: bool = True,
        run_as: str | None = None,
    ) -> None:
        """Touch nothing yet.

        Args:
            data_dir: an empty directory, or one that this class has made; see ``operations.md`` for the default.
            major: the major version of PostgreSQL.
            port: also listen on this port of 127.0.0.1, with a generated password.
            durable: ``False`` is fast and loses data with the machine: for tests.
            run_as: the account of the server when this process is root.

        Raises:
            InvalidOptionError: ``major`` or ``port`` is out of range.
        """
        if major not in MAJORS:
            raise InvalidOptionError(option="major", value=ascii(major), bound="16, 17 or 18")
        if port is not None and not 1 <= port <= 65535:  # noqa: PLR2004 - the range of ports
            raise InvalidOptionError(option="port", value=ascii(port), bound="1..65535")
        self._home = directories.home_of(data_dir, major=major)
        self._major = major
        self._port = port
        self._durable = durable
        self._run_as = run_as
        self._handles: list[Handle] = []
        self._thread_lock = threading.RLock()

    def start(self) -> ServerStatus:
        """Start the server, or find it running, and keep it until :meth:`stop`.

        Raises:
            DeploymentError: ``embedded_missing``, ``embedded_version`` or ``embedded_failed``.
        """
        with self._alone() as account:
            self._ensure_running(account)
            directories.write_private(self._home.kept_mark, "", account)
            return self.status()

    def stop(self) -> bool:
        """Stop the server whoever uses it: fast, and after 30 seconds at once. ``False`` when none was running.

        Raises:
            DeploymentError: it does not stop.
        """
        with directories.access_to(self._home):
            if not self._home.start_lock.exists():
                return False
        with self._alone():
            return self._stop_now()

    def status(self) -> ServerStatus:
        """Look without changing anything.

        Raises:
            DeploymentError: the directory is not readable.
        """
        with directories.access_to(self._home):
            return self._look()

    def _look(self) -> ServerStatus:
        found = find_postmaster(self._home.cluster)
        has_port = found is not None and self._listens()
        return ServerStatus(
            major=self._home.version() or self._major,
            data_dir=self._home.path,
            is_running=found is not None,
            is_durable=not self._home.not_durable_mark.exists(),
            account=self._account().name,
            pid=found.pid if found else None,
            socket_directory=found.socket_directory if found else None,
            port=found.port if found and has_port else None,
            password_file=self._home.password if has_port else None,
        )

    @property
    def url(self) -> URL:
        """The address of the running server for SQLAlchemy, over its socket. It holds no secret.

        Raises:
            DeploymentError: ``embedded_stopped``; no server is running.
        """
        found = find_postmaster(self._home.cluster)
        if found is None:
            raise DeploymentError(reason="embedded_stopped", detail=str(self._home.path))
        query = {"host": str(found.socket_directory), "port": str(found.port)}
        return URL.create("postgresql+asyncpg", username=cluster.SUPERUSER, database=cluster.DATABASE, query=query)

    def __enter__(self) -> Self:
        """Start the server, or join those who use it."""
        with self._alone() as account:
            was_running = find_postmaster(self._home.cluster) is not None
            self._ensure_running(account)
            if not was_running:
                self._home.kept_mark.unlink(missing_ok=True)
            self._handles.append(Handle(self._home, account))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave; the last one stops the server unless it is kept."""
        with self._alone():
            if self._handles.pop().close() and not self._home.kept_mark.exists():
                self._stop_now()

    def _account(self) -> Account:
        return server_account(self._home.path, run_as=self._run_as)

    @contextmanager
    def _alone(self) -> Iterator[Account]:
        """Hold the directory against other threads and processes."""
        account = self._account()
        with self._thread_lock:
            with directories.access_to(self._home):
                self._refuse_other_version()
            directories.prepare(self._home, account)
            with one_at_a_time(self._home, account, timeout=_LOCK_SECONDS), directories.access_to(self._home):
                yield account

    def _refuse_other_version(self) -> None:
        found = self._home.version()
        if found is not None and found != self._major:
            detail = f"{self._home.path} holds data of version {found}, the binaries are of version {self._major}"
            raise DeploymentError(reason="embedded_version", detail=detail)

    def _refuse_other_port(self) -> None:
        found = self._look().port
        if self._port not in (None, found):
            detail = f"the running server does not listen on port {self._port}: stop it first"
            raise DeploymentError(reason="embedded_failed", detail=detail)

    def _ensure_running(self, account: Account) -> Postmaster:
        if find_postmaster(self._home.cluster) is not None:
            self._refuse_other_port()
            return cluster.await_ready(self._home)
        binaries = usable_by(account, find_binaries(self._major))
        if not self._durable:
            directories.write_private(self._home.not_durable_mark, "", account)
        if not self._home.cluster.exists():
            cluster.make_cluster(self._home, account, binaries, durable=self._durable)
        return cluster.start_cluster(self._home, account, binaries, port=self._port, durable=self._durable)

    def _stop_now(self) -> bool:
        found = find_postmaster(self._home.cluster)
        if found is not None:
            stop_process(found)
        self._home.kept_mark.unlink(missing_ok=True)
        directories.remove_short_socket_directory(self._home)
        return found is not None

    def _listens(self) -> bool:
        try:
            return "listen_addresses = '127.0.0.1'" in self._home.settings.read_text(encoding="utf-8")
        except OSError:
            return False
