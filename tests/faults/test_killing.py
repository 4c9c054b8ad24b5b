"""The tools that break things do what they say: processes die at the n-th passing of a place, and only there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import pytest

from agentruns.testing.faults import DeathAt, DoomedProcess, HeldStatement, WireProxy, _Wire

SCRIPT = """
import sys
from agentruns.testing.faults import DeathAt
death = DeathAt.parse(sys.argv[1])
for turn in (1, 2, 3):
    print("a", turn, flush=True)
    death.passes("a")
    print("b", turn, flush=True)
    death.passes("b")
"""
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.mark.parametrize(
    ("death", "status", "said"),
    [
        ("", 0, ["a 1", "b 1", "a 2", "b 2", "a 3", "b 3"]),
        ("a 1", -SIGKILL, ["a 1"]),
        ("b 2", -SIGKILL, ["a 1", "b 1", "a 2", "b 2"]),
        ("c 1", 0, ["a 1", "b 1", "a 2", "b 2", "a 3", "b 3"]),
        ("a 4", 0, ["a 1", "b 1", "a 2", "b 2", "a 3", "b 3"]),
    ],
)
def test_a_process_dies_at_the_nth_passing_of_its_place(death: str, status: int, said: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, death], stdout=subprocess.PIPE, check=False)  # noqa: S603
    assert (done.returncode, done.stdout.decode().splitlines()) == (status, said)


def test_a_statement_that_commits_facts_passes_before_and_after_whatever_the_schema_is_called() -> None:
    death = DeathAt()
    before = death._listener("before")
    for statement in (
        "WITH e AS (INSERT INTO agentruns.run_events (tenant_id) SELECT 1) SELECT 1",
        'INSERT INTO "other".run_events (tenant_id) VALUES (1)',
        "SELECT sequence FROM agentruns.run_events",
        "INSERT INTO agentruns.run_events_archive VALUES (1)",
    ):
        before(None, None, statement, None, None, None)
    assert death._passed == {"before": 2}


def test_a_doomed_process_is_killed_when_the_test_says_so_and_gone_when_the_block_ends() -> None:
    with DoomedProcess.running(SLEEPER) as doomed:
        assert Path(f"/proc/{doomed.pid}").exists()
        doomed.kill()
        assert not Path(f"/proc/{doomed.pid}").exists()
    with DoomedProcess.running(SLEEPER, environment={}) as forgotten:
        pass
    assert not Path(f"/proc/{forgotten.pid}").exists()


def test_a_process_that_has_ended_by_itself_was_not_killed() -> None:
    with DoomedProcess.running([sys.executable, "-c", "pass"]) as ended:
        ended._process.wait()
        with pytest.raises(AssertionError, match="had ended before it was killed, with status 0"):
            ended.kill()


@pytest.mark.parametrize("needle", [b"", b"x" * 257])
def test_a_needle_that_would_meet_everything_or_nothing_is_refused(needle: bytes) -> None:
    with pytest.raises(ValueError, match="a needle has 1 to 256 bytes"):
        HeldStatement(needle)
    with pytest.raises(ValueError, match="a needle has 1 to 256 bytes"):
        WireProxy(target=None).lose_answer(needle)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "data", "is_shown"),
    [
        (b"", b"...needle...", True),
        (b"...nee", b"dle...", True),
        (b"...needl", b"e", True),
        (b"...needle", b"...", False),
        (b"...nee", b"...", False),
        (b"...needle", b"needle", True),
    ],
)
def test_a_needle_is_seen_where_reads_have_cut_it_and_not_again_once_it_was_sent(
    before: bytes, data: bytes, *, is_shown: bool
) -> None:
    wire = _Wire(None, None)  # type: ignore[arg-type]
    wire.note(before)
    assert wire.shows(b"needle", data) is is_shown
