"""Refuse an argument of another type before anything is sent."""

from __future__ import annotations


def check_argument(name: str, value: object, kind: type) -> None:
    """Insist on a type; text where a name or an id belongs is the usual slip.

    Raises:
        TypeError: it is another one. The value is not repeated: it may be a key.
    """
    if not isinstance(value, kind):
        raise TypeError(f"pass {name} as {kind.__name__}, not {type(value).__name__}")
