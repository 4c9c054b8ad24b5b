"""The server's process: recognised by pid, data directory and start time together, and only then signalled."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

import psutil
from attrs import frozen

from agentruns.errors import DeploymentError

_PAUSE: Final = 0.02
#: The kernel counts from when the machine started, and whoever sets the clock moves that instant.
_CLOCK_TOLERANCE: Final = 60.0
_FAST_SECONDS: Final = 30.0
_IMMEDIATE_SECONDS: Final = 30.0
_PID_FILE_LINES: Final = 5


@frozen(kw_only=True)
class Postmaster:
    """Hold what ``postmaster.pid`` says, after the process has been recognised.

    Attributes:
        is_ready: whether it accepts connections.
    """

    pid: int
    started_at: int
    port: int
    socket_directory: Path
    is_ready: bool
    process: psutil.Process


def find_postmaster(cluster: Path) -> Postmaster | None:
    """Find the server that runs on a cluster directory; ``None`` when there is none, or the file is an old one's."""
    try:
        lines = (cluster / "postmaster.pid").read_text(encoding="utf-8").split("\n")
        pid, directory, started_at, port, sockets = lines[:_PID_FILE_LINES]
        process = psutil.Process(int(pid))
        if not _is_same(process, cluster, Path(directory), int(started_at)):
            return None
        is_ready = any(line.strip() == "ready" for line in lines[_PID_FILE_LINES:])
        return Postmaster(
            pid=int(pid),
            started_at=int(started_at),
            port=int(port),
            socket_directory=Path(sockets.split(",")[0]),
            is_ready=is_ready,
            process=process,
        )
    except (OSError, ValueError, psutil.Error):
        return None


def _is_same(process: psutil.Process, cluster: Path, directory: Path, started_at: int) -> bool:
    if process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - started_at) > _CLOCK_TOLERANCE:
        return False
    return directory.samefile(cluster) and Path(process.cwd()).samefile(cluster)


def forget_stale_pids(cluster: Path, sockets: Path) -> None:
    """Remove lock files of a dead server whose pid is taken, by a zombie or by somebody else: they would stop a start.

    They stay while any process still works in the directory: a server's children outlive it by moments.
    """
    files = [cluster / "postmaster.pid", *sockets.glob(".s.PGSQL.*.lock")]
    stale = [path for path in files if _names_existing_pid(path)]
    if stale and find_postmaster(cluster) is None and not _is_worked_in(cluster):
        for path in stale:
            path.unlink(missing_ok=True)


def _names_existing_pid(path: Path) -> bool:
    try:
        return psutil.pid_exists(int(path.read_text(encoding="utf-8").split("\n", 1)[0]))
    except (OSError, ValueError):
        return False


def _is_worked_in(cluster: Path) -> bool:
    """Every process of a server has its cluster as working directory."""
    target = os.path.realpath(cluster)
    return any(process.info["cwd"] == target for process in psutil.process_iter(["cwd"]))


def stop_process(postmaster: Postmaster) -> None:
    """Ask the server to shut down fast, and after 30 seconds to drop everything at once.

    Raises:
        DeploymentError: it is still there after both.
    """
    for wanted, seconds in ((signal.SIGINT, _FAST_SECONDS), (signal.SIGQUIT, _IMMEDIATE_SECONDS)):
        if not _signal(postmaster.process, wanted) or _has_ended(postmaster.process, within=seconds):
            return
    raise DeploymentError(reason="embedded_failed", detail=f"the server with pid {postmaster.pid} does not stop")


def _signal(process: psutil.Process, wanted: signal.Signals) -> bool:
    """Send a signal; ``False`` when the process has ended, or its pid is another's by now."""
    try:
        process.send_signal(wanted)
    except psutil.NoSuchProcess:
        return False
    return True


def _has_ended(process: psutil.Process, *, within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not _is_alive(process):
            return True
        time.sleep(_PAUSE)
    return not _is_alive(process)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
