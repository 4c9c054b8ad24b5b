"""Texts that people wrote."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.texts import check_public_text, check_text, utf8_size
from agentruns.errors import InvalidValueError

BIDI = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]


def public(text: object, max_bytes: int = 64) -> str | None:
    try:
        check_public_text("Failure", text, max_bytes=max_bytes)
    except InvalidValueError as error:
        return error.reason
    return None


def model(text: str) -> bool:
    """Judge the form of a line, character by character."""

    def is_allowed(character: str) -> bool:
        code = ord(character)
        return (
            unicodedata.category(character) not in {"Cc", "Cs"}
            and code not in {0x2028, 0x2029, *BIDI}
            and not 0xFDD0 <= code <= 0xFDEF
            and code & 0xFFFE != 0xFFFE
        )

    return all(map(is_allowed, text)) and not text[0].isspace() and not text[-1].isspace()


def any_text() -> st.SearchStrategy[str]:
    odd = st.sampled_from(
        [*map(chr, BIDI), " ", "\n", "\u2028", "\u00a0", "\ufdd0", "\ufffe", "\U0010ffff", "\x85", "é"]
    )
    return st.lists(odd | st.characters(), min_size=1, max_size=8).map("".join)


@given(any_text())
def test_the_form_of_a_line_is_what_the_model_says(text: str) -> None:
    assert public(text) == (None if model(text) else "invalid_format")


@pytest.mark.parametrize("code", [*BIDI, 0x2028, 0x2029, 0x00, 0x1F, 0x7F, 0x85, 0x9F, 0xD800, 0xFDD0, 0xFDEF, 0x1FFFF])
def test_a_character_that_could_mislead_is_refused_in_the_middle(code: int) -> None:
    assert public(f"a{chr(code)}b") == "invalid_format"


def test_a_line_is_bounded_in_bytes() -> None:
    assert public("") == "too_short"
    assert public("é" * 32) is None
    assert public("é" * 32 + "x") == "too_long"


def test_a_line_is_a_text() -> None:
    assert public(b"bytes") == "wrong_type"
    assert public(None) == "wrong_type"


def refusal(text: object) -> str:
    with pytest.raises(InvalidValueError) as caught:
        check_text("InstructionText", text, shortest=1, longest=4)
    return caught.value.reason


def test_other_text_is_bounded_in_bytes_and_well_formed() -> None:
    check_text("InstructionText", "\né\n", shortest=1, longest=4)
    assert refusal("") == "too_short"
    assert refusal("ééx") == "too_long"
    assert refusal("\ud800") == "lone_surrogate"
    assert refusal(1) == "wrong_type"


def test_a_lone_surrogate_counts_three_bytes() -> None:
    assert utf8_size("\ud800é") == 5
