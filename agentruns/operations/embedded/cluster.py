"""Make a cluster and start its server: ``initdb``, our settings, ``pg_ctl``."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Final

from agentruns.errors import DeploymentError
from agentruns.operations.embedded.account import Account
from agentruns.operations.embedded.binaries import Binaries
from agentruns.operations.embedded.directories import Home, socket_directory, write_private
from agentruns.operations.embedded.process import Postmaster, find_postmaster, forget_stale_pids

SUPERUSER: Final = "agentruns"
DATABASE: Final = "postgres"
DEFAULT_PORT: Final = 5432

_START_SECONDS: Final = 60
_CRASH_SECONDS: Final = 15.0
_LONGEST_LOG: Final = 1 << 20
_HOST_RULES: Final = """\
local all all trust
host all all 127.0.0.1/32 scram-sha-256
"""


def make_cluster(home: Home, account: Account, binaries: Binaries, *, durable: bool) -> None:
    """Run ``initdb`` beside the final place and move the result there, so that a crash leaves nothing half made."""
    scratch = home.path / "making"
    shutil.rmtree(scratch, ignore_errors=True)
    write_private(home.password, secrets.token_urlsafe(32), account)
    command: list[str | Path] = [binaries.command("initdb"), "-D", scratch, "-U", SUPERUSER, "--pwfile", home.password]
    command += ["--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256"]
    done = account.run([*command, "--no-instructions", *([] if durable else ["--no-sync"])], cwd=home.path)
    if done.returncode != 0:
        raise _failed("initdb", done.stdout, home)
    write_private(scratch / "pg_hba.conf", _HOST_RULES, account)
    _include_settings(scratch / "postgresql.conf", home, account)
    scratch.rename(home.cluster)


def _include_settings(configuration: Path, home: Home, account: Account) -> None:
    text = configuration.read_text(encoding="utf-8")
    write_private(configuration, f"{text}\ninclude_if_exists '{home.settings.name}'\n", account)


def start_cluster(home: Home, account: Account, binaries: Binaries, *, port: int | None, durable: bool) -> Postmaster:
    """Start the server and hand it back once it accepts connections.

    Raises:
        DeploymentError: ``embedded_failed`` with the server's last word.
    """
    sockets = socket_directory(home, account)
    write_private(home.settings, _settings(sockets, port=port, durable=durable), account)
    is_after_crash = (home.cluster / "postmaster.pid").exists()
    deadline = time.monotonic() + (_CRASH_SECONDS if is_after_crash else 0.0)
    while (found := _try_start(home, account, binaries, sockets)) is None:
        # The children of a server that was killed hold its memory for moments longer.
        if time.monotonic() >= deadline:
            raise _failed("pg_ctl", _tail(home.log), home)
        time.sleep(0.2)
    return found


def _try_start(home: Home, account: Account, binaries: Binaries, sockets: Path) -> Postmaster | None:
    forget_stale_pids(home.cluster, sockets)
    if home.log.exists() and home.log.stat().st_size > _LONGEST_LOG:
        home.log.replace(home.log.with_suffix(".old"))
    command: list[str | Path] = [binaries.command("pg_ctl"), "start", "-w", "-t", str(_START_SECONDS), "-s"]
    account.run([*command, "-D", home.cluster, "-l", home.log], cwd=home.path, timeout=_START_SECONDS * 2)
    return find_postmaster(home.cluster)


def await_ready(home: Home) -> Postmaster:
    """Wait for a server that somebody else has started and not seen through.

    Raises:
        DeploymentError: it ended, or accepts no connections within a minute.
    """
    deadline = time.monotonic() + _START_SECONDS
    while (found := find_postmaster(home.cluster)) is not None and time.monotonic() < deadline:
        if found.is_ready:
            return found
        time.sleep(0.05)
    raise _failed("postgres", _tail(home.log), home)


def _settings(sockets: Path, *, port: int | None, durable: bool) -> str:
    quoted = str(sockets).replace("'", "''").replace('"', '""')
    lines = [
        f"listen_addresses = '{'' if port is None else '127.0.0.1'}'",
        f"port = {port or DEFAULT_PORT}",
        f"unix_socket_directories = '\"{quoted}\"'",
        "unix_socket_permissions = 0700",
        "password_encryption = 'scram-sha-256'",
        "max_connections = 200",
        "timezone = 'UTC'",
        "log_timezone = 'UTC'",
        "logging_collector = off",
        # The superuser has the name of our default schema, where "$user" would put a host's tables.
        "search_path = 'public'",
    ]
    if not durable:
        lines += ["fsync = off", "full_page_writes = off", "synchronous_commit = off"]
    return "\n".join(["# Written at each start; put your own settings into postgresql.conf.", *lines, ""])


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _failed(command: str, output: str, home: Home) -> DeploymentError:
    """Name the last complaint of a program; the rest is in the log."""
    complaints = [line for line in output.splitlines() if "FATAL:" in line or "error:" in line or "could not" in line]
    last = complaints[-1].split("FATAL:")[-1].split("error:")[-1].strip()[:200] if complaints else "no reason given"
    return DeploymentError(reason="embedded_failed", detail=f"{command}: {last}; see {home.log}")
