"""A bounded memory of what schemas said about documents, least recently used out."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final, Literal

from attrs import define, field, frozen

MAXIMUM_BYTES: Final = 16 * 1024 * 1024

#: What one verdict takes besides its texts: the key, the entry and the links of the order.
ENTRY_BYTES: Final = 256

ACCEPTED: Final = "accepted"


@frozen(kw_only=True)
class Rejection:
    """Keep why a document was rejected, without any of its data.

    Attributes:
        keyword: the keyword that does not hold.
        schema_pointer: the way to that keyword through the schema, references included.
        pointer: the place in the document. Member names may be private.
    """

    keyword: str
    schema_pointer: str
    pointer: str = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of the three texts."""
        return sum(len(text.encode()) for text in (self.keyword, self.schema_pointer, self.pointer))


Verdict = Rejection | Literal["accepted"]


@define(kw_only=True, eq=False)
class Verdicts:
    """Remember verdicts by the raw digests of schema and document, from any number of threads.

    The lock is held for a dictionary's operation and never while a validator runs, so two threads may judge one
    document at once; both come to the same verdict.
    """

    maximum: int
    maximum_bytes: int = MAXIMUM_BYTES
    _kept: OrderedDict[bytes, Verdict] = field(init=False, factory=OrderedDict, repr=False)
    _bytes: int = field(init=False, default=0, repr=False)
    _lock: Lock = field(init=False, factory=Lock, repr=False)

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: bytes) -> Verdict | None:
        """Give the verdict kept under ``key``, and make it the most recently used."""
        with self._lock:
            verdict = self._kept.get(key)
            if verdict is not None:
                self._kept.move_to_end(key)
            return verdict

    def keep(self, key: bytes, verdict: Verdict) -> None:
        """Keep a verdict, and forget the least recently used ones while a bound is passed."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = verdict
                self._bytes += _weight(verdict)
            while self._kept and (len(self._kept) > self.maximum or self._bytes > self.maximum_bytes):
                _, forgotten = self._kept.popitem(last=False)
                self._bytes -= _weight(forgotten)


def _weight(verdict: Verdict) -> int:
    return ENTRY_BYTES if verdict == ACCEPTED else ENTRY_BYTES + verdict.size
