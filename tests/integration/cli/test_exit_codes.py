"""Exit codes of real processes: one for each that a command of today can end with."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

Command = Callable[..., Any]
NOWHERE = "postgresql://u@127.0.0.1:1/none"
UNKNOWN = ("runs", "show", "t", "01890000-0000-7000-8000-000000000000")


def test_0_when_it_is_done_or_already_so(agentruns_process: Command, empty_database_url: str) -> None:
    first = agentruns_process("db", "upgrade", url=empty_database_url)
    assert (first.code, first.err) == (0, "Migrating schema agentruns to head\n")
    assert agentruns_process("db", "upgrade", url=empty_database_url).code == 0


def test_2_for_wrong_usage(agentruns_process: Command) -> None:
    assert agentruns_process("db", "upgrade", "--schema", "public", url=NOWHERE).code == 2
    assert agentruns_process("nonsense").code == 2


def test_3_for_what_is_not_found(agentruns_process: Command, database_url: str) -> None:
    assert agentruns_process(*UNKNOWN, url=database_url).code == 3


def test_4_for_what_is_refused(agentruns_process: Command, place: Any) -> None:
    (place / "data").mkdir()
    (place / "data" / "PG_VERSION").write_text("15\n")
    assert agentruns_process("server", "start").code == 4


def test_6_for_an_unusable_schema(agentruns_process: Command, empty_database_url: str) -> None:
    assert agentruns_process("db", "verify", url=empty_database_url).code == 6


def test_7_for_a_database_that_is_not_there(agentruns_process: Command) -> None:
    ended = agentruns_process("db", "verify", url=NOWHERE)
    assert (ended.code, ended.out) == (7, "")
    assert ended.err == (
        "Error: The database cannot be reached: check the host and port in its URL and that the server runs,"
        " then try again\n"
    )


def test_130_for_an_interrupt(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUNS_DATABASE_URL", empty_database_url)
    # Whoever starts the tests in the background of a shell has them ignore interrupts, and so their children.
    script = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from agentruns.cli import connection, db, main
from sqlalchemy import text
def wait(settings, output, work):
    print("waiting", flush=True)
    return real(settings, output, lambda reading: reading.execute(text("SELECT pg_sleep(60)")).all())
real, connection.read = connection.read, wait
main(["db", "current", "--timeout", "60"])
"""
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
