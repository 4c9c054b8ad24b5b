"""Run the command line, in this process or as a person does."""

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
def variables(place: Path) -> dict[str, str | None]:
    """What a command finds in its environment: without a URL its embedded server is below the place."""
    found = dict.fromkeys(name for name in os.environ if name.startswith("AGENTRUNS_"))
    return {**found, "AGENTRUNS_DATA_DIR": str(place / "data")}


@pytest.fixture
def agentruns(variables: dict[str, str | None]) -> Command:
    """Run ``agentruns`` in this process."""

    def run(*arguments: str, url: str | None = None) -> Ended:
        environment = {**variables, "AGENTRUNS_DATABASE_URL": url}
        done = CliRunner(env=environment).invoke(main, arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return Ended(code=done.exit_code, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture
def agentruns_process(variables: dict[str, str | None]) -> Command:
    """Run ``agentruns`` in a process of its own."""

    def run(*arguments: str, url: str | None = None) -> Ended:
        changed = {**os.environ, **variables, "AGENTRUNS_DATABASE_URL": url}
        environment = {name: value for name, value in changed.items() if value is not None}
        command = [sys.executable, "-c", "from agentruns.cli import main; main()", *arguments]
        done = subprocess.run(  # noqa: S603 - our own command
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert "Traceback" not in done.stderr
        return Ended(code=done.returncode, out=done.stdout, err=done.stderr)

    return run
