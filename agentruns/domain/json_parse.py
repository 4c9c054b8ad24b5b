"""JSON text to a tree, by the strict reading: no duplicate names, no number that would come back as another."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8

from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.json_walk import INTEGER_MAX, JsonTree
from agentruns.errors import InvalidJsonError

_NUMBER_LENGTH = 1024
_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)


def parse_text(data: bytes | str, limits: JsonLimits) -> JsonTree:
    """Decode, scan and parse; what remains to be checked is what a walk over the tree sees.

    So are numbers that are none of ours: they are left in the tree for the walk, which knows their place.

    Raises:
        InvalidJsonError: without a cause or context, since a parser's own error carries the document.
    """
    text = _decoded(data, limits.max_bytes)
    _refuse_depth(text, limits.max_depth)
    try:
        tree: JsonTree = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        line, column = error.lineno, error.colno
    else:
        return tree
    raise InvalidJsonError(reason="invalid_json", line=line, column=column)


def _decoded(data: bytes | str, max_bytes: int) -> str:
    if type(data) is str:
        data = _encoded(data)
    if type(data) is not bytes:
        raise TypeError("JSON is read from bytes or str")
    if len(data) > max_bytes:
        raise InvalidJsonError(reason="input_too_large", limit=max_bytes, actual=len(data))
    if data.startswith(BOM_UTF8):
        raise InvalidJsonError(reason="byte_order_mark")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    raise InvalidJsonError(reason="invalid_utf8")


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        pass
    raise InvalidJsonError(reason="lone_surrogate")


def _refuse_depth(text: str, max_depth: int) -> None:
    """Count open brackets outside of strings before any parser recurses over them."""
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for found in _BRACKET.finditer(text):
        bracket = found.group()
        if bracket in "[{":
            depth += 1
            if depth > max_depth:
                raise InvalidJsonError(reason="nesting_too_deep", limit=max_depth, actual=depth)
        elif bracket in "]}":
            depth -= 1


def _members(pairs: list[tuple[str, JsonTree]]) -> dict[str, JsonTree]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise InvalidJsonError(reason="duplicate_key")
    return members


def _integer(literal: str) -> int:
    _refuse_length(literal)
    return int(literal)


def _float(literal: str) -> int | float:
    _refuse_length(literal)
    number = float(literal)
    return int(number) if number.is_integer() and abs(number) <= INTEGER_MAX else number


def _refuse_length(literal: str) -> None:
    if len(literal) > _NUMBER_LENGTH:
        raise InvalidJsonError(reason="number_too_long", limit=_NUMBER_LENGTH, actual=len(literal))


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_int=_integer, parse_float=_float, parse_constant=float)
