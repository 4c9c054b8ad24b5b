"""What the demo's agent finds in a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentruns.cli import demo_text
from agentruns.cli.demo_agent import input_of
from agentruns.cli.demo_input import read_text
from agentruns.domain.bounded_json import BoundedJson


def test_measures() -> None:
    assert demo_text.measure("One two,\nthree-four it's 5.") == {"words": 4, "lines": 2, "minutes": 1}
    assert demo_text.measure("word " * 201) == {"words": 201, "lines": 1, "minutes": 2}
    assert demo_text.measure("12") == {"words": 0, "lines": 1, "minutes": 0}


@pytest.mark.parametrize(
    ("text", "outline"),
    [
        ("# One\ntext\n## Two\n", ["One", "Two"]),
        ("1. One\ntext.\n2.1) Two\n", ["1. One", "2.1) Two"]),
        ("1. This is a sentence.\nMore.", ["1. This is a sentence."]),
        ("First one. Second.\n\nOther\nparagraph", ["First one.", "Other paragraph"]),
        ("#nothing", ["#nothing"]),
        ("\n\n".join(f"p{number}." for number in range(20)), [f"p{number}." for number in range(12)]),
    ],
)
def test_outlines(text: str, outline: list[str]) -> None:
    assert demo_text.outline_of(text) == outline


def test_keywords_are_the_frequent_words_that_are_not_common() -> None:
    counted = demo_text.keywords_of("The pump and the valve. Which pump? That pump, the valve; those cats have cats")
    assert list(counted.items()) == [("pump", 3), ("cats", 2), ("valve", 2)]


def test_long_lines_and_controls_are_not_shown() -> None:
    assert demo_text.clipped("a\x1b[31m\tb\u202e") == "a [31m b"
    assert demo_text.clipped("x" * 121) == "x" * 119 + "…"


def test_a_text_in_many_parts_is_whole_again() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000)))
    tree: Any = input_of(text)
    parts = tree["parts"]
    assert [len(part) for part in parts] == [16_000, 4_000]
    assert "".join(parts) == text


@given(st.text(min_size=1).filter(lambda text: text.strip() != ""))
def test_any_text_can_be_worked_on(text: str) -> None:
    keywords = demo_text.keywords_of(text)
    found = [demo_text.title_of(text), *demo_text.outline_of(text), *keywords, *demo_text.summary_of(text, keywords)]
    assert all(len(line) <= 120 and (line.isprintable() or line == "") for line in found)
    BoundedJson.of({**demo_text.measure(text), "found": [*found, *demo_text.pressing_words_of(text)]})


def test_the_sample_is_text_and_a_mark_at_the_beginning_is_left_out(tmp_path: Path) -> None:
    assert read_text(None).startswith("Cold store at the harbour")
    (tmp_path / "marked.txt").write_bytes(b"\xef\xbb\xbfhello")
    assert read_text(tmp_path / "marked.txt") == "hello"
