"""Canonical bytes joined from parts that are canonical already, so that each byte is encoded once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from agentruns.errors import InvalidValueError

#: What an absent optional is in a digest's preimage; in wire form it is left out instead.
NULL = b"null"


def quoted(text: str) -> bytes:
    """Write a text that needs no escape: an id, digest, instant, decimal or kind."""
    return b'"%b"' % text.encode("ascii")


def array(parts: Iterable[bytes]) -> bytes:
    """Write an array of canonical parts, in their order."""
    return b"[%b]" % b",".join(parts)


def member_prefix(name: str) -> bytes:
    """Write what stands before the value of a member whose name is fixed ASCII text."""
    return quoted(name) + b":"


def member_order(names: Iterable[str]) -> list[str]:
    """Sort names by their UTF-16 code units (RFC 8785 section 3.2.3)."""
    return sorted(names, key=lambda name: name.encode("utf-16-be"))


def spliced_object(members: Mapping[str, bytes | None], *, max_bytes: int | None = None) -> bytes:
    """Write an object whose names are fixed ASCII text and whose values are canonical; ``None`` is left out.

    Raises:
        InvalidValueError: ``too_large``, before anything is joined.
    """
    parts = [prefix + value for name, prefix in _layout(tuple(members)) if (value := members[name]) is not None]
    return joined_object(parts, max_bytes=max_bytes, owner="object")


def joined_object(parts: list[bytes], *, max_bytes: int | None, owner: str) -> bytes:
    """Join members that are in order, each with its name.

    Raises:
        InvalidValueError: ``too_large``, before anything is joined.
    """
    if max_bytes is not None and sum(map(len, parts)) + max(len(parts), 1) + 1 > max_bytes:
        raise InvalidValueError(type_name=owner, reason="too_large")
    return b"{%b}" % b",".join(parts)


@lru_cache(maxsize=512)
def _layout(names: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    """Order the members of a class once; the order in which it states them is the key."""
    return tuple((name, member_prefix(name)) for name in member_order(names))
