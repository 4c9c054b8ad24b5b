"""Files that the demo cannot work on: one sentence, exit code 2, and nothing started or left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

ADVICE = "name a file that can be used"
TOO_LARGE = "The file is larger than a request may be, 262144 bytes as JSON"
NO_TEXT = "The file is not text in UTF-8 without control characters"

FILES = {
    "empty": (b"", "The file is empty"),
    "blank": (b" \n\t\r\n", "The file is empty"),
    "only a mark": (b"\xef\xbb\xbf", "The file is empty"),
    "nul": (b"text\0text", NO_TEXT),
    "latin-1": ("caf\u00e9".encode("latin-1"), NO_TEXT),
    "utf-16": ("text".encode("utf-16"), NO_TEXT),
    "binary": (bytes(range(1, 128)), NO_TEXT),
    "surrogate": (b"\xed\xa0\x80", NO_TEXT),
    "large": (b"word " * 52_429, TOO_LARGE),
    "large as json": (b'"' * 131_073, TOO_LARGE),
    "large binary": (b"\0" * 300_000, TOO_LARGE),
}


@pytest.fixture(params=FILES)
def bad(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    data, sentence = FILES[request.param]
    path = tmp_path / "input.txt"
    path.write_bytes(data)
    return path, sentence


def test_a_file_that_is_no_text_for_a_request(
    demo_here: Callable[..., Any], place: Path, bad: tuple[Path, str]
) -> None:
    path, sentence = bad
    ended = demo_here("--input", str(path))
    assert (ended.code, ended.out, ended.err) == (2, "", f"Error: {sentence}: {path}: {ADVICE}\n")
    assert not list(place.iterdir())


def test_the_same_for_programs(demo_here: Callable[..., Any], place: Path, bad: tuple[Path, str]) -> None:
    path, sentence = bad
    ended = demo_here("--input", str(path), "--format", "json")
    assert (ended.code, ended.out) == (2, "")
    assert json.loads(ended.err) == {
        "error": {
            "code": "file",
            "message": f"{sentence}: {path}",
            "id": None,
            "action": ADVICE,
            "retryable": False,
        }
    }
    assert not list(place.iterdir())


def test_a_file_that_is_missing_and_a_directory(demo_here: Callable[..., Any], place: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.txt"
    ended = demo_here("--input", str(missing))
    assert (ended.code, ended.err) == (2, f"Error: No such file or directory: {missing}: {ADVICE}\n")
    ended = demo_here("--input", str(tmp_path))
    assert (ended.code, ended.err) == (2, f"Error: Is a directory: {tmp_path}: {ADVICE}\n")
    assert not list(place.iterdir())


def test_a_database_of_ones_own_is_not_migrated_by_the_demo(
    demo: Callable[..., Any], empty_database_url: str, within: Callable[..., Any]
) -> None:
    ended = demo("--quiet", url=empty_database_url)
    assert (ended.code, ended.out) == (6, "")
    assert ended.err == (
        "Error: The schema has not been migrated (reason=not_migrated, schema=agentruns): run `agentruns db upgrade`\n"
    )

    def schemas(connection: Connection) -> int:
        found: int = connection.execute(
            text("SELECT count(*) FROM pg_namespace WHERE nspname = 'agentruns'")
        ).scalar_one()
        return found

    assert within(empty_database_url, schemas) == 0


def test_no_server(demo: Callable[..., Any]) -> None:
    ended = demo("--quiet", url="postgresql://nobody:planted@127.0.0.1:1/nothing")
    assert (ended.code, ended.out) == (7, "")
    assert ended.err.count("\n") == 1
    assert "planted" not in ended.err
