"""Run the command line in a process of its own, as a person does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import frozen

from agentruns.operations.embedded import EmbeddedServer

_MAIN = "from agentruns.cli import main; main()"


@frozen(kw_only=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may pass, for the embedded server's data; the server is stopped in the end."""
    directory = Path(tempfile.mkdtemp(prefix="agentruns-test-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    EmbeddedServer(directory / "data").stop()
    shutil.rmtree(directory)


@pytest.fixture
def agentruns(place: Path) -> Command:
    """Run ``agentruns``; without ``url`` it finds its embedded server below the place."""

    def run(*arguments: str, url: str | None = None) -> Ended:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTRUNS_")}
        environment["AGENTRUNS_DATA_DIR"] = str(place / "data")
        if url is not None:
            environment["AGENTRUNS_DATABASE_URL"] = url
        command = [sys.executable, "-c", _MAIN, *arguments]
        done = subprocess.run(  # noqa: S603 - our own command
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert "Traceback" not in done.stderr
        return Ended(code=done.returncode, out=done.stdout, err=done.stderr)

    return run
