"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import UUID

import pytest

from agentruns.cli.options import Format, Settings
from agentruns.cli.output import Output

ROW = {
    "id": UUID("01890000-0000-7000-8000-000000000000"),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=2))),
    "age": timedelta(hours=1, seconds=2.5),
    "path": Path("/there"),
    "is_there": True,
    "none": None,
    "list": ("a", 1),
}


def test_json_has_instants_in_utc_and_durations_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Settings(output_format=Format.JSON)).document(ROW)
    assert json.loads(capsys.readouterr().out) == {
        "id": "01890000-0000-7000-8000-000000000000",
        "at": "2026-01-02T01:04:05.000678Z",
        "age": 3602.5,
        "path": "/there",
        "is_there": True,
        "none": None,
        "list": ["a", 1],
    }


def test_a_list_in_json_is_one_whole_row_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Settings(output_format=Format.JSON)).lines([{"a": 1, "b": 2}, {"a": 3, "b": 4}], columns=("a",))
    assert capsys.readouterr().out == '{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n'


def test_a_document_for_people_has_a_line_a_member(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Settings()).document(ROW)
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.replace("is there", "is_there").splitlines()]
    assert {name: value.strip() for name, value in lines} == {
        "id": "01890000-0000-7000-8000-000000000000",
        "at": "2026-01-02 01:04:05Z",
        "age": "1:00:02",
        "path": "/there",
        "is_there": "yes",
        "none": "-",
        "list": "a, 1",
    }


def test_a_long_list_in_a_document_has_a_line_an_item_and_a_long_item_several(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output(Settings()).document({"short": ["a", "b"], "long": ["a", "b" * 97, "c " * 60]})
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "short  a, b",
        "long   a",
        f"       {'b' * 97}",
        f"       {'c ' * 46}c",
        f"         {'c ' * 12}c",
    ]


def test_a_row_in_a_pipe_stays_on_one_line_whatever_its_length(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Settings()).lines([{"a": "x" * 500, "b": "[red]y"}], columns=("a", "b"))
    rows = [line for line in capsys.readouterr().out.splitlines() if "x" in line]
    assert [row.split() for row in rows] == [["x" * 500, "[red]y"]]


def test_messages_go_to_standard_error_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Settings()).say("working")
    Output(Settings(is_quiet=True)).say("working")
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "working\n")
