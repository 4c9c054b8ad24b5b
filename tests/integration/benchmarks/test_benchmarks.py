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
    assert found["figures"]["submit_many of 64"]["calls"] == 3 * 64
    assert found["ratios"]["submit / floor"]["bar"] == 0.5
    assert not [name for name in found["figures"] if "dbos" in name]
    assert found["server"]["fsync"] == "on"
    commits = {name: count["commits"] for name, count in found["counts"].items()}
    assert {name: commits[name] for name in ("submit, alone", "load", "retry of a known key")} == {
        "submit, alone": 1,
        "load": 1,
        "retry of a known key": 3,
    }
    # Submit, claim with the history, a commit for each node and one more, load; a machine that stalls adds stamps.
    assert 1 + 1 + (3 + 1) + 1 <= commits["run of 3 nodes, alone"] < 10


def test_the_smallest_benchmark_of_workers_measures_every_case(tmp_path: Path) -> None:
    sizes = ["--rounds", "1", "--runs", "8", "--claims", "16", "--callers", "4", "--seconds", "1"]
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-m", "benchmarks", "workers", *sizes, "--json", tmp_path / "figures.json"],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    found = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    # So short a queue is empty before the server is back, which is said and not passed over.
    assert (done.returncode, found["is_above_bar"]) == (1, False), done.stderr
    assert found["recovery"]["seconds"] is None
    assert {name: each["calls"] for name, each in found["figures"].items()} == {
        "queue of runs, 1 worker processes": 8,
        "queue of runs, 2 worker processes": 8,
        "queue of runs, 4 worker processes": 8,
        "claims, sixteen in a statement": 16,
        "claims, a statement each": 16,
        "runs of four tenants, in turn": 8,
        "runs of four tenants, by weights": 8,
    }


def test_a_missed_bar_is_seen_whether_it_is_a_ratio_or_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(CHECKOUT)
    from benchmarks.counts import Count  # noqa: PLC0415 - the folder is no installed package
    from benchmarks.ratios import ceilings, ratios  # noqa: PLC0415 - likewise

    rates = {"superstep, short history": [100.0, 100.0], "superstep, long history": [80.0, 100.0]}
    (ratio,) = ratios(rates).values()
    assert (ratio.median, ratio.lowest, ratio.highest, ratio.is_above_bar) == (0.9, 0.8, 1.0, True)
    (missed,) = ratios({**rates, "superstep, long history": [80.0, 80.0]}).values()
    assert not missed.is_above_bar
    for commits, is_kept in ((6.0, True), (6.01, False)):
        (ceiling,) = ceilings({"drive of 3 nodes, alone": Count(commits=commits, log_bytes=0.0)}).values()
        assert ceiling.is_kept is is_kept


def test_the_profile_says_how_much_of_a_call_is_ours() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "profile", "--calls", "40", "--callers", "2"],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert {"domain", "schemas", "SQLAlchemy", "asyncpg"} <= {
        line.strip("│ ").split("│")[0].strip() for line in done.stdout.splitlines()
    }


def test_the_smallest_measurement_of_idle_workers_shows_what_they_do_and_cost() -> None:
    sizes = ("--runs", "2", "--workers", "2", "--seconds", "1", "--rounds", "1", "--submits", "20", "--callers", "2")
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "benchmarks", "idle", *sizes],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONSAFEPATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {line.strip("│ ").split("│")[0].strip() for line in done.stdout.splitlines()}
    assert {"told (LISTEN)", "polling every second", "1", "2", "tells", "is silent"} <= rows
