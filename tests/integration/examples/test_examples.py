"""Each example runs as it stands, as a person runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentruns.operations.embedded import EmbeddedServer

EXAMPLES = Path(__file__).parents[3] / "examples"
WRITES = {
    "approval.py": "succeeded {'paid': 500}\n",
    "faults.py": "idempotent succeeded 49 laws hold\n",
    "laws.py": """the graph shop breaks a law: it does the same outside
  when nothing goes wrong: [5]
  after these steps:       [5, 5]
    1. worker 1 executes charge, attempt 1
    2. worker 1 dies before it has committed what charge has left
    3. worker 2 executes charge, attempt 2
    4. worker 2 executes ship, attempt 1
    5. the run has succeeded
""",
    "quickstart.py": "idempotent succeeded {'is_question': True, 'words': 4}\n",
}


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """Data of the test's own, in a directory that everybody may pass."""
    directory = Path(tempfile.mkdtemp(prefix="agentruns-test-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory / "data"
    EmbeddedServer(directory / "data").stop()
    shutil.rmtree(directory)


def test_no_example_is_left_out() -> None:
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(WRITES)


@pytest.mark.parametrize("name", WRITES)
def test_an_example_writes_what_it_promises(name: str, data_dir: Path) -> None:
    environment = {**os.environ, "AGENTRUNS_DATA_DIR": str(data_dir)}
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, WRITES[name], "")


def test_the_first_example_is_short_and_holds_no_digest_or_id() -> None:
    text = (EXAMPLES / "quickstart.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    assert not re.search(r"sha256|[0-9a-f]{8}", text)
