"""File locks between processes: an exclusive one to start and stop, a shared one per user of the server."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from agentruns.errors import DeploymentError
from agentruns.operations.embedded.account import Account
from agentruns.operations.embedded.directories import Home, open_private

_PAUSE: Final = 0.02


@contextmanager
def one_at_a_time(home: Home, account: Account, *, timeout: float) -> Iterator[None]:
    """Keep every other process from starting or stopping the server inside the block.

    Raises:
        DeploymentError: another process did not let go within ``timeout`` seconds.
    """
    descriptor = open_private(home.start_lock, account, os.O_RDWR)
    try:
        _wait_for(descriptor, home, deadline=time.monotonic() + timeout)
        yield
    finally:
        os.close(descriptor)


def _wait_for(descriptor: int, home: Home, *, deadline: float) -> None:
    while not _try(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            detail = f"another process has been starting or stopping the server in {home.path} for too long"
            raise DeploymentError(reason="embedded_failed", detail=detail)
        time.sleep(_PAUSE)


def _try(descriptor: int, operation: int) -> bool:
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            return False
        raise
    return True


class Handle:
    """Stand for one user of the server; the kernel closes it when its process ends, however it ends."""

    def __init__(self, home: Home, account: Account) -> None:
        """Join the users of the server. The start lock must be held."""
        self._descriptor = open_private(home.handle_lock, account, os.O_RDWR)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def close(self) -> bool:
        """Leave, and say whether nobody else is left. The start lock must be held."""
        try:
            return _try(self._descriptor, fcntl.LOCK_EX)
        finally:
            os.close(self._descriptor)
