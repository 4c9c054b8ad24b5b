"""The one encoder whose bytes are stored and digested (RFC 8785), and the compact one for answers that leave."""

from __future__ import annotations

import json

import rfc8785

from agentruns.domain.json_limits import MIB, JsonLimits
from agentruns.domain.json_parse import parse_text
from agentruns.domain.json_plain import PLAIN_ENCODER, plain_tree
from agentruns.domain.json_walk import JsonTree, Walked, walk
from agentruns.errors import InvalidJsonError

__all__ = [
    "JsonTree",
    "canonical_bytes",
    "dump_json",
    "encode_bounded",
    "encode_walked",
    "parse_canonical",
    "parse_json",
]

#: No record and no document is larger; what is smaller is bounded where it enters.
_UNBOUNDED = JsonLimits.record(64 * MIB)

_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False)


def canonical_bytes(tree: JsonTree) -> bytes:
    """Encode a tree as RFC 8785 says.

    Raises:
        InvalidJsonError: the tree breaks a rule of JSON values.
    """
    return encode_walked(tree, walk(tree, _UNBOUNDED))


def encode_walked(tree: JsonTree, walked: Walked) -> bytes:
    """Encode a tree that has just been walked; what the walk saw decides about the path, never the result."""
    if walked.is_plain:
        return PLAIN_ENCODER.encode(tree).encode("utf-8")
    return rfc8785.dumps(tree)


def encode_bounded(tree: JsonTree, limits: JsonLimits) -> bytes:
    """Walk a tree under limits, then encode it and bound its size.

    Raises:
        InvalidJsonError: a rule or a limit is broken; ``too_large`` for the canonical bytes.
    """
    data = encode_walked(tree, walk(tree, limits))
    if len(data) > limits.max_bytes:
        raise InvalidJsonError(reason="too_large", limit=limits.max_bytes, actual=len(data))
    return data


def dump_json(tree: JsonTree) -> bytes:
    """Encode a tree compactly, members in their own order, for answers that leave the process."""
    walk(tree, _UNBOUNDED)
    return _COMPACT.encode(tree).encode("utf-8")


def parse_json(data: bytes | str, limits: JsonLimits) -> JsonTree:
    """Read outside text.

    Integral floats become integers, so that equal numbers are equal values.

    Raises:
        InvalidJsonError: the first broken rule, in the order size, encoding, nesting, syntax and names, numbers and the
            limits of the tree, size of the canonical bytes.
    """
    tree = parse_text(data, limits)
    encode_bounded(tree, limits)
    return tree


def parse_canonical(data: bytes, limits: JsonLimits) -> JsonTree:
    """Read canonical bytes.

    Raises:
        InvalidJsonError: as :func:`parse_json`; ``not_canonical`` where any byte is not what the encoder writes.
    """
    if (plain := plain_tree(data, limits)) is not None:
        return plain[0]
    tree = parse_text(data, limits)
    if encode_bounded(tree, limits) != data:
        raise InvalidJsonError(reason="not_canonical")
    return tree
