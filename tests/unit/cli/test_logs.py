"""A warning shows its fields: a constant message alone would help nobody."""

from __future__ import annotations

import logging
import sys

import pytest

import agentruns
from agentruns.cli.logs import FieldsFormatter


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "WARNING agentruns.runtime.worker: a run was given back"),
        (
            {"run_id": "0189", "error": "LeaseLostError"},
            "WARNING agentruns.runtime.worker: a run was given back (error=LeaseLostError, run_id=0189)",
        ),
    ],
)
def test_a_line_has_level_logger_message_and_fields(fields: dict[str, str], line: str) -> None:
    record = logging.makeLogRecord(
        {"name": "agentruns.runtime.worker", "levelname": "WARNING", "msg": "a run was given back", **fields}
    )
    assert FieldsFormatter().format(record) == line


def test_a_traceback_follows_its_line() -> None:
    try:
        int("x")
    except ValueError:
        record = logging.makeLogRecord(
            {"name": "agentruns", "levelname": "ERROR", "msg": "x", "exc_info": sys.exc_info()}
        )
    first, second, *_, last = FieldsFormatter().format(record).splitlines()
    assert (first, second) == ("ERROR agentruns: x", "Traceback (most recent call last):")
    assert last == "ValueError: invalid literal for int() with base 10: 'x'"


def test_the_library_alone_writes_nowhere() -> None:
    handlers = logging.getLogger(agentruns.__name__).handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)
