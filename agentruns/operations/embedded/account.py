"""The account that the embedded server runs as: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from agentruns.errors import DeploymentError

_ENVIRONMENT: Final = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
_FALLBACKS: Final = ("postgres", "nobody")


@frozen(kw_only=True)
class Account:
    """Stand for an existing account of this machine.

    Attributes:
        is_other: whether commands must change to it, because this process is root.
    """

    name: str
    uid: int
    gid: int
    is_other: bool

    def run(
        self, command: Sequence[str | Path], *, cwd: Path = Path("/"), timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as this account in a fixed environment and hand back its end, with all that it printed.

        A server that it leaves behind must have its output elsewhere.

        Raises:
            DeploymentError: it could not be run, or did not end within ``timeout`` seconds.
        """
        try:
            return subprocess.run(  # noqa: S603 - the commands are the embedded server's own, without a shell
                [str(part) for part in command],
                cwd=cwd,
                env=_ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
                umask=0o077,
                user=self.uid if self.is_other else None,
                group=self.gid if self.is_other else None,
                extra_groups=[] if self.is_other else None,
            )
        except (OSError, subprocess.SubprocessError) as error:
            detail = f"account {self.name} cannot run {command[0]} ({type(error).__name__})"
            raise DeploymentError(reason="embedded_failed", detail=detail) from error

    def can_enter(self, directory: Path) -> bool:
        """Say whether this account reaches a directory through all of its parents."""
        return self.run(["/bin/sh", "-c", 'cd -- "$1"', "sh", directory]).returncode == 0


def server_account(home: Path, *, run_as: str | None) -> Account:
    """Choose who runs the server: as root ``run_as``, the directory's owner, ``postgres`` or ``nobody``, else oneself.

    Raises:
        DeploymentError: the account does not exist, is root, or cannot be taken by this process.
    """
    if os.geteuid() == 0:
        return _taken_by_root(home, run_as=run_as)
    own = pwd.getpwuid(os.geteuid())
    if run_as not in (None, own.pw_name):
        raise DeploymentError(reason="embedded_failed", detail="only root can run the server as another account")
    return Account(name=own.pw_name, uid=own.pw_uid, gid=own.pw_gid, is_other=False)


def _taken_by_root(home: Path, *, run_as: str | None) -> Account:
    entry = _named(run_as) if run_as is not None else _owner(home) or _fallback()
    if entry is None:
        raise DeploymentError(reason="embedded_failed", detail="as root, name an existing account with --run-as")
    if entry.pw_uid == 0:
        raise DeploymentError(reason="embedded_failed", detail="PostgreSQL never runs as root: change --run-as")
    return Account(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, is_other=True)


def _named(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except (KeyError, ValueError):
        return None


def _owner(home: Path) -> pwd.struct_passwd | None:
    try:
        uid = home.lstat().st_uid
        return pwd.getpwuid(uid) if uid else None
    except (OSError, KeyError):
        return None


def _fallback() -> pwd.struct_passwd | None:
    return next((entry for entry in map(_named, _FALLBACKS) if entry is not None), None)
