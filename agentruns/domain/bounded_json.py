"""The immutable JSON value of the library: canonical bytes that were bounded when they entered."""

from __future__ import annotations

import json
from typing import Self

from attrs import frozen

from agentruns.domain.canonical import JsonTree, encode_bounded, parse_canonical
from agentruns.domain.digests import Digest, plain_digest
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.json_parse import parse_text
from agentruns.domain.json_walk import Walked, walk

#: For bytes that are known to be one canonical value: nothing has to be detected or skipped around it.
_DECODER = json.JSONDecoder()


class _KeptDigest:
    """Keep the digest outside equality, ``repr``, wire form and pickles."""

    __slots__ = ("_digest",)


@frozen(repr=False, weakref_slot=False)
class BoundedJson(_KeptDigest):
    """Hold a JSON value that nobody can change. Made by :meth:`parse` or :meth:`of`, compared by its bytes.

    Attributes:
        data: the canonical bytes.
    """

    data: bytes

    @classmethod
    def parse(cls, data: bytes | str, limits: JsonLimits = JsonLimits.DEFAULT) -> Self:
        """Read outside text under limits.

        Raises:
            InvalidJsonError: the first broken rule or limit.
        """
        return cls.of(parse_text(data, limits), limits)

    @classmethod
    def of(cls, tree: JsonTree, limits: JsonLimits = JsonLimits.DEFAULT) -> Self:
        """Take a tree of exactly JSON's types; nothing is converted, and changing it later changes nothing here.

        Raises:
            InvalidJsonError: the first broken rule or limit.
        """
        return cls(encode_bounded(tree, limits))

    @classmethod
    def read(cls, data: bytes, max_bytes: int = JsonLimits.MAXIMUM.max_bytes) -> Self:
        """Take canonical bytes that were bounded when they entered, as a column holds them.

        Raises:
            InvalidJsonError: ``not_canonical``, or larger than any such column holds.
        """
        parse_canonical(data, JsonLimits.record(max_bytes))
        return cls(data)

    @property
    def size(self) -> int:
        """Length of the canonical bytes: the size of a JSON value everywhere."""
        return len(self.data)

    @property
    def depth(self) -> int:
        """Of nesting; a scalar is 0. Counted when it is asked for."""
        return self._walked.depth

    @property
    def nodes(self) -> int:
        """Values altogether. Counted when it is asked for."""
        return self._walked.nodes

    @property
    def _walked(self) -> Walked:
        return walk(self.value, JsonLimits.record(self.size))

    @property
    def value(self) -> JsonTree:
        """Decode a fresh tree."""
        tree: JsonTree = _DECODER.raw_decode(self.data.decode())[0]
        return tree

    @property
    def digest(self) -> Digest:
        """Plain digest of the canonical bytes."""
        kept: Digest | None = getattr(self, "_digest", None)
        if kept is None:
            kept = plain_digest(self.data)
            object.__setattr__(self, "_digest", kept)
        return kept

    def __repr__(self) -> str:
        return f"BoundedJson(size={self.size}, depth={self.depth}, nodes={self.nodes}, {self.digest})"
