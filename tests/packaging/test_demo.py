"""The demo of the installed package, as the README's first command runs it."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentruns.operations.embedded import EmbeddedServer

pytestmark = pytest.mark.slow


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Data of the test's own, in a directory that the server's account may pass."""
    place = Path(tempfile.mkdtemp(prefix="agentruns-test-"))
    place.chmod(0o755)
    yield place / "data"
    EmbeddedServer(place / "data").stop()
    shutil.rmtree(place)


def test_the_demo_runs_in_the_checkout(checkout: Path, data_dir: Path, command: Callable[..., str]) -> None:
    # The folder agentruns/ of the checkout must not take the place of the package that is installed.
    program = Path(sys.executable).parent / "agentruns"
    shown = json.loads(command(program, "demo", "--format", "json", cwd=checkout, AGENTRUNS_DATA_DIR=str(data_dir)))
    assert shown["run_id"] == shown["resolved_run_id"]
    assert (shown["outcomes"], shown["status"], shown["verified"]) == (["committed", "idempotent"], "succeeded", True)
