"""Text that people wrote: public lines in failures, titles and summaries, and text for models."""

from __future__ import annotations

import re

from agentruns.errors import InvalidValueError

_NONCHARACTERS = "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))

#: Controls, line and paragraph separators, bidirectional controls, surrogates and noncharacters.
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef" + _NONCHARACTERS + "]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_public_text(type_name: str, text: object, *, max_bytes: int) -> None:
    """Refuse what is not 1..``max_bytes`` UTF-8 bytes of public text on one line.

    That the text holds no secret is its author's duty.

    Raises:
        InvalidValueError: ``wrong_type``, ``too_short``, ``too_long`` or ``invalid_format``.
    """
    reason = _refusal(text, max_bytes) if type(text) is str else "wrong_type"
    if reason is not None:
        raise InvalidValueError(type_name=type_name, reason=reason)


def check_text(type_name: str, text: object, *, shortest: int, longest: int) -> None:
    """Refuse what is not ``shortest``..``longest`` UTF-8 bytes of text without lone surrogates.

    Raises:
        InvalidValueError: ``wrong_type``, ``too_short``, ``too_long`` or ``lone_surrogate``.
    """
    if type(text) is not str:
        raise InvalidValueError(type_name=type_name, reason="wrong_type")
    size = utf8_size(text)
    if not shortest <= size <= longest:
        raise InvalidValueError(type_name=type_name, reason="too_short" if size < shortest else "too_long")
    if _SURROGATE.search(text):
        raise InvalidValueError(type_name=type_name, reason="lone_surrogate")


def utf8_size(text: str) -> int:
    """Count the UTF-8 bytes of a text, a lone surrogate as three."""
    return len(text.encode("utf-8", "surrogatepass"))


def _refusal(text: str, max_bytes: int) -> str | None:
    if not text:
        return "too_short"
    if utf8_size(text) > max_bytes:
        return "too_long"
    if text != text.strip() or _FORBIDDEN.search(text):
        return "invalid_format"
    return None
