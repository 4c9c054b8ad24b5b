"""Bounds of JSON values: six dimensions that are counted where a value enters."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from attrs import fields, frozen

from agentruns.domain.scalars import refuse

KIB = 1024
MIB = 1024 * KIB

RECORD_MAX_BYTES = 2 * MIB
_RECORD_MAX_DEPTH = 96
_RECORD_MAX_NAME = 1024


@frozen(kw_only=True)
class JsonLimits:
    """Bound one JSON value. Each dimension is at least 1 and at most its hard maximum.

    Attributes:
        max_bytes: of the raw input, white space included, and then of the canonical bytes.
        max_depth: of nesting; a scalar root is 0, a root container 1.
        max_entries: of one array or object.
        max_nodes: values altogether; member names do not count.
        max_string_bytes: decoded UTF-8 bytes of one string.
        max_key_bytes: decoded UTF-8 bytes of one member name.
    """

    max_bytes: int = 256 * KIB
    max_depth: int = 32
    max_entries: int = 1024
    max_nodes: int = 16_384
    max_string_bytes: int = 64 * KIB
    max_key_bytes: int = 256

    #: For request input, result output and authority evidence.
    DEFAULT: ClassVar[JsonLimits]
    #: For graph state, updates and whole envelopes of payloads.
    MAXIMUM: ClassVar[JsonLimits]

    hard_maxima: ClassVar[dict[str, int]] = {
        "max_bytes": 2 * MIB,
        "max_depth": 64,
        "max_entries": 8192,
        "max_nodes": 131_072,
        "max_string_bytes": MIB,
        "max_key_bytes": 1024,
    }

    def __attrs_post_init__(self) -> None:
        for dimension in fields(JsonLimits):
            value = getattr(self, dimension.name)
            if type(value) is not int:
                raise TypeError("JsonLimits takes int")
            if not 1 <= value <= self.hard_maxima.get(dimension.name, value):
                raise refuse(self, "out_of_range")

    @staticmethod
    def record(max_bytes: int = RECORD_MAX_BYTES) -> JsonLimits:
        """Bound a whole record, in which user JSON is nested: depth 96, and everything else by the bytes alone."""
        return _record_limits(max_bytes)


class _RecordLimits(JsonLimits):
    """Bound records, which may be larger than any value of a user's."""

    __slots__ = ()
    hard_maxima: ClassVar[dict[str, int]] = {}


@lru_cache(maxsize=64)
def _record_limits(max_bytes: int) -> JsonLimits:
    return _RecordLimits(
        max_bytes=max_bytes,
        max_depth=_RECORD_MAX_DEPTH,
        max_entries=max_bytes,
        max_nodes=max_bytes,
        max_string_bytes=max_bytes,
        max_key_bytes=_RECORD_MAX_NAME,
    )


JsonLimits.DEFAULT = JsonLimits()
JsonLimits.MAXIMUM = JsonLimits(**JsonLimits.hard_maxima)
