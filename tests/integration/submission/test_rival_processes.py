"""Processes that know nothing of each other submit under one key."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from agentruns.domain.ids import RunId
from agentruns.domain.submission_key import AgentSubmissionKey

pytestmark = pytest.mark.slow

Run = Callable[[Coroutine[Any, Any, Any]], Any]

ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
PROCESSES, CALLS, ROUNDS = 4, 6, 5
SUBMITTER = Path(__file__).with_name("rival_submitter.py")


@contextmanager
def rivals(url: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the processes and wait until each could submit."""
    command = [sys.executable, str(SUBMITTER), url, str(CALLS)]
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
            )
            for _ in range(PROCESSES)
        ]
        for each in started:
            assert said(each.stdout).readline() == "ready\n"
        yield started
        for each in started:
            said(each.stdin).close()
    assert [each.returncode for each in started] == [0] * PROCESSES


def said(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def one_round(started: list[subprocess.Popen[str]], way: str) -> list[tuple[str, str]]:
    """Let all processes submit under one fresh key at once."""
    key = AgentSubmissionKey.generate()
    for each in started:
        said(each.stdin).write(f"{way} {key}\n")
    for each in started:
        said(each.stdin).flush()
    return [tuple(answer) for each in started for answer in json.loads(said(each.stdout).readline())]


def test_SUB_03_of_24_submitters_in_four_processes_one_commits(kit: Any, run: Run) -> None:
    ways = ("coalesced", "joined")
    with rivals(kit.url) as started:
        for way in ways * ROUNDS:
            answers = one_round(started, way)
            assert Counter(outcome for outcome, _ in answers) == {
                "committed": 1,
                "idempotent": PROCESSES * CALLS - 1,
            }
            (run_id,) = {run_id for _, run_id in answers}
            assert RunId.parse(run_id)
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, ROUNDS * len(ways))
