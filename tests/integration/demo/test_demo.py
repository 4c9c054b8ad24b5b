"""The demo from end to end: a lost answer, a worker killed with SIGKILL, and what the record says afterwards."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.slow

TEXT = """# Lost parcels

Two parcels were lost on Monday. The warehouse looked for both parcels and found one.

# What is asked

Please answer before the deadline. Nobody knows where the second parcel is.
"""
MEMBERS = [
    "run_id",
    "resolved_run_id",
    "outcomes",
    "status",
    "revision",
    "outcome",
    "attempts",
    "journal_events",
    "verified",
]
ATTEMPTS = [
    ("read", 1, 1, "succeeded"),
    ("keywords", 1, 1, "succeeded"),
    ("outline", 1, 1, "superseded"),
    ("outline", 2, 2, "succeeded"),
    ("compose", 1, 2, "succeeded"),
]
#: Admission, five starts, four ends, two barriers and the end of the run.
EVENTS = 1 + 5 + 4 + 2 + 1
OUTPUT = {
    "title": "Lost parcels",
    "words": 32,
    "lines": 7,
    "minutes": 1,
    "outline": ["Lost parcels", "What is asked"],
    "keywords": [
        {"word": "parcels", "count": 3},
        {"word": "lost", "count": 2},
        {"word": "answer", "count": 1},
        {"word": "asked", "count": 1},
        {"word": "deadline", "count": 1},
        {"word": "found", "count": 1},
        {"word": "knows", "count": 1},
        {"word": "looked", "count": 1},
    ],
    "summary": [
        "Two parcels were lost on Monday.",
        "The warehouse looked for both parcels and found one.",
        "Please answer before the deadline.",
    ],
    "priority": "pressing",
    "pressing_words": ["deadline"],
}


def told(run: Any) -> tuple[Any, ...]:
    """Check everything that must be the same each time, and give what must differ."""
    assert list(run) == MEMBERS
    assert run["run_id"] == run["resolved_run_id"]
    assert run["outcomes"] == ["committed", "idempotent"]
    assert (run["status"], run["revision"], run["journal_events"], run["verified"]) == ("succeeded", 2, EVENTS, True)
    found = [(each["node"], each["attempt"], each["fence_epoch"], each["state"]) for each in run["attempts"]]
    assert found == ATTEMPTS
    result = run["outcome"]["result"]
    assert (run["outcome"]["kind"], result["output"]) == ("succeeded", OUTPUT)
    assert result["provenance"]["run_id"] == run["run_id"]
    return run["run_id"], result["provenance"]["tenant_id"]


def test_twice_in_a_row_on_the_embedded_server(demo: Callable[..., Any], tmp_path: Path) -> None:
    document = tmp_path / "parcels.md"
    document.write_text(TEXT)
    runs = []
    for quiet in ((), ("--quiet",)):
        ended = demo("--input", str(document), "--format", "json", *quiet)
        assert (ended.code, ended.out.count("\n")) == (0, 1)
        assert bool(ended.err) is not bool(quiet)
        runs.append(told(json.loads(ended.out)))
    assert runs[0] != runs[1]


def test_with_tables_and_the_sample_on_a_database_of_ones_own(demo: Callable[..., Any], database_url: str) -> None:
    ended = demo(url=database_url)
    assert ended.code == 0
    rows = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "outcomes committed, idempotent" in rows
    assert "verified yes" in rows
    assert f"journal events {EVENTS}" in rows
    assert [row for row in rows if row.endswith(("succeeded", "superseded"))][1:] == [
        " ".join(map(str, attempt)) for attempt in ATTEMPTS
    ]
    assert "title Cold store at the harbour: what happened in the night of 3 March" in rows
    steps = [line for line in ended.err.splitlines() if line[:1].isdigit()]
    assert [step[0] for step in steps] == list("123456")
    assert re.search(r"^   Process [0-9]+ was killed with SIGKILL\.$", ended.err, re.MULTILINE)


def worker_of(process: Any) -> psutil.Process:
    """Read what the demo tells until it has started its first worker."""
    while line := process.stderr.readline():
        if found := re.match(r"3\. Worker process ([0-9]+) starts", line):
            return psutil.Process(int(found[1]))
    raise AssertionError("no worker was started")


def has_ended(worker: psutil.Process) -> bool:
    """Whether it has ended; one that nobody waits for may stay as a zombie."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.1)
    return False


def test_a_worker_does_not_outlive_a_demo_that_is_killed(started: Callable[..., Any], database_url: str) -> None:
    process = started(url=database_url)
    worker = worker_of(process)
    process.kill()
    process.communicate()
    assert has_ended(worker)


def test_an_interrupt_ends_the_demo_and_its_worker(started: Callable[..., Any], database_url: str) -> None:
    process = started(url=database_url)
    worker = worker_of(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert has_ended(worker)
