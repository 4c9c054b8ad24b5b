"""A place for data directories that the server's account can reach, and a way to run code as a plain user."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import agentruns
from agentruns.operations.embedded.directories import home_of
from agentruns.operations.embedded.process import find_postmaster, stop_process


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may pass; servers that a test leaves behind are stopped."""
    directory = Path(tempfile.mkdtemp(prefix="agentruns-test-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    for home in directory.iterdir():
        if (found := find_postmaster(home_of(home, major=18).cluster)) is not None:
            stop_process(found)
    shutil.rmtree(directory)


def interpreter_for(name: str | None) -> tuple[str, dict[str, str]]:
    """Find an interpreter of this version that the account can run, and the environment in which it finds us."""
    paths = [sysconfig.get_path("purelib"), str(Path(agentruns.__file__).parents[1])]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        probe = [candidate, "-c", "import attrs, agentruns"]
        with contextlib.suppress(OSError):
            done = subprocess.run(probe, user=name, env=environment, check=False)  # noqa: S603 - this interpreter
            if done.returncode == 0:
                return candidate, environment
    pytest.skip(f"account {name} cannot run an interpreter of this version")


@pytest.fixture
def python_as_user() -> Callable[[str], str]:
    """Run a script in another process as somebody who is not root."""
    name = "nobody" if os.geteuid() == 0 else None
    interpreter, environment = interpreter_for(name)

    def run(script: str) -> str:
        done = subprocess.run(  # noqa: S603 - the test's own script
            [interpreter, "-c", script],
            user=name,
            group=pwd.getpwnam(name).pw_gid if name else None,
            extra_groups=[] if name else None,
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stderr == ""
        return done.stdout

    return run
