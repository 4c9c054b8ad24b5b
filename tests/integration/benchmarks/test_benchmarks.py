"""The benchmarks run; what they measure is not judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("AGENTRUNS_TEST_MAJOR", "18") != "18", reason="its server is of version 18"),
]


def test_the_smallest_benchmark_measures_every_case(tmp_path: Path) -> None:
    sizes = ["--rounds", "1", "--submits", "40", "--runs", "8", "--alone", "5", "--callers", "2"]
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-m", "benchmarks", *sizes, "--json", tmp_path / "figures.json"],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    found = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert done.returncode == (0 if found["is_above_bar"] else 1), done.stderr
    assert found["figures"]["submit"]["calls"] == 40
    assert found["figures"]["run of 3 nodes"]["calls"] == 8
    assert found["server"]["fsync"] == "on"
    commits = {name: count["commits"] for name, count in found["counts"].items()}
    assert {name: commits[name] for name in ("submit, alone", "load", "retry of a known key")} == {
        "submit, alone": 1,
        "load": 1,
        "retry of a known key": 3,
    }
    # Submit, claim, read of the history, a commit for each node and two more, load; a machine that stalls adds stamps.
    assert 1 + 1 + 1 + (3 + 2) + 1 <= commits["run of 3 nodes, alone"] < 10
