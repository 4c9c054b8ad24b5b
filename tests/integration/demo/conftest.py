"""Run ``agentruns`` as a person does, with data of the test's own."""

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
from click.testing import CliRunner

from agentruns.cli import main
from agentruns.operations.embedded import EmbeddedServer

#: Whoever starts the tests in the background of a shell has them ignore interrupts, and so their children.
SCRIPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from agentruns.cli import main
main()
"""
COMMAND = [sys.executable, "-c", SCRIPT, "demo"]


@frozen(kw_only=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may pass, for the embedded server's data; the server is stopped in the end."""
    directory = Path(tempfile.mkdtemp(prefix="agentruns-test-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    EmbeddedServer(directory / "data").stop()
    shutil.rmtree(directory)


@pytest.fixture
def started(place: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the demo in a process and a session of its own; without a URL its server is below the place."""

    def start(*arguments: str, url: str | None = None) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AGENTRUNS_")}
        environment |= {"AGENTRUNS_DATA_DIR": str(place / "data")} if url is None else {"AGENTRUNS_DATABASE_URL": url}
        return subprocess.Popen(  # noqa: S603 - our own command
            [*COMMAND, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


@pytest.fixture
def demo(started: Callable[..., subprocess.Popen[str]]) -> Callable[..., Ended]:
    """Run the demo to its end."""

    def run(*arguments: str, url: str | None = None) -> Ended:
        process = started(*arguments, url=url)
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err
        return Ended(code=process.returncode, out=out, err=err)

    return run


@pytest.fixture
def demo_here(place: Path) -> Callable[..., Ended]:
    """Run the demo in this process, for what ends before anything is started."""

    def run(*arguments: str) -> Ended:
        environment = {"AGENTRUNS_DATA_DIR": str(place / "data"), "AGENTRUNS_DATABASE_URL": None}
        done = CliRunner(env=environment).invoke(main, ["demo", *arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return Ended(code=done.exit_code, out=done.stdout, err=done.stderr)

    return run
