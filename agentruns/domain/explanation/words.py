"""Instants and spans of time, as an explanation says them."""

from __future__ import annotations

from typing import Final

from agentruns.domain.timestamps import Timestamp

_SECOND: Final = 1_000_000
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
#: Of the units, so many are said.
_SAID: Final = 2


def instant(at: Timestamp) -> str:
    """Say an instant to the second."""
    text = str(at)
    return f"{text[:10]} {text[11:19]}Z"


def span(earlier: Timestamp, later: Timestamp) -> str:
    """Say how long it is between two instants in whole seconds, by the two largest units; nothing is below zero."""
    rest = max(later.micros - earlier.micros, 0) // _SECOND
    said: list[tuple[int, str]] = []
    for seconds, unit in _UNITS:
        count, rest = divmod(rest, seconds)
        if count or said:
            said.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in said[:_SAID] if count) or "0 s"


def since(at: Timestamp | None, now: Timestamp) -> str:
    """Say since when and for how long something is so."""
    return "since nobody knows when" if at is None else f"since {instant(at)}, for {span(at, now)}"


def past(at: Timestamp, now: Timestamp) -> str:
    """Say when something was."""
    return f"at {instant(at)}, {span(at, now)} ago"


def future(at: Timestamp, now: Timestamp) -> str:
    """Say when something will be, without the word before the instant."""
    return f"{instant(at)}, in {span(now, at)}"


def counted(count: int, noun: str) -> str:
    """Say how many of something there are."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
