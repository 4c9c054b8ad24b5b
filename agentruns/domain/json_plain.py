"""The short reading of bytes that were canonical when they were written; what it cannot vouch for is read strictly."""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.json_walk import JsonTree

#: Whose bytes are the canonical ones for every tree that holds no float and no name beyond ASCII.
PLAIN_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
)
#: An integer with fewer digits is within the range of ours.
_MANY_DIGITS: Final = re.compile(rb"[0-9]{16}")
#: Only beside such a character is the order of code points another one than that of UTF-16.
_BEYOND_16_BITS: Final = re.compile("[\U00010000-\U0010ffff]")


def plain_tree(data: bytes, limits: JsonLimits) -> tuple[JsonTree] | None:
    """Read bytes that are canonical and within the limits beyond doubt; ``None`` where the strict reading has to say.

    What comes back encodes to the very same bytes, so there was no duplicate name, no white space and no other spelling
    of anything. The rest is bounded by how many bytes, brackets and digits there are.
    """
    if not _is_within(data, limits) or _MANY_DIGITS.search(data):
        return None
    try:
        text = data.decode("utf-8")
        if not text.isascii() and _BEYOND_16_BITS.search(text):
            return None
        tree: Any = _DECODER.decode(text)
        return (tree,) if PLAIN_ENCODER.encode(tree).encode("utf-8") == data else None
    except ValueError:
        # Of syntax, of an encoding, or of what this reading does not take.
        return None


def is_small(data: bytes, *, max_depth: int, max_nodes: int) -> bool:
    """Tell whether the bytes of a JSON value have so few brackets and commas that these limits cannot be broken."""
    brackets = data.count(b"[") + data.count(b"{")
    return brackets <= max_depth and brackets + data.count(b",") < max_nodes


def _is_within(data: bytes, limits: JsonLimits) -> bool:
    """Tell whether no limit can be broken, judged by the bytes alone."""
    if len(data) > limits.max_bytes or data.count(b",") >= limits.max_entries:
        return False
    if not is_small(data, max_depth=limits.max_depth, max_nodes=limits.max_nodes):
        return False
    longest = min(limits.max_key_bytes, limits.max_string_bytes)
    if len(data) <= longest:
        return True
    # No text is longer than what stands between two quotes of which none is escaped.
    between = data.replace(b'\\"', b"xx") if b"\\" in data else data
    return max(map(len, between.split(b'"'))) <= longest


def _refuse(_literal: str) -> NoReturn:
    raise ValueError


_DECODER: Final = json.JSONDecoder(parse_float=_refuse)
