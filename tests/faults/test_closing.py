"""A process that is asked to end, with everything under way, ends by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("closing_worker.py")
RUNS = 20


def test_E5_the_process_exits_though_nodes_sleep_and_calls_wait(database_url: str, owner_url: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(SCRIPT), owner_url, database_url, str(RUNS)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  # our own
    found = {how: int(count) for how, count in (line.split() for line in ended.stdout.splitlines())}
    assert sum(found.values()) == 2 * RUNS
    # A drive says that it was cancelled, or that its store is closed; whoever waits learns the latter.
    assert found.keys() <= {"cancelled", "UnitOfWorkError"}
    assert found["UnitOfWorkError"] >= RUNS
