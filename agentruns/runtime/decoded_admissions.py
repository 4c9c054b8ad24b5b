"""Remember the records of admissions: submissions, drives and reads of one process meet the same ones."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from attrs import define, field

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.admission_reader import AdmissionReader
from agentruns.domain.digests import Digest, DigestPurpose, digest_body

#: What the kept records hold, about.
MAXIMUM_BYTES: Final = 64 * 1024 * 1024
#: What a record holds besides its canonical bytes.
OVERHEAD: Final = 4096


@define
class DecodedAdmissions:
    """Decode each admission once; the least recently used ones are let go beyond a bound. Any thread may ask.

    Whoever asks has hashed the bytes that it has just read, so a kept record stands for exactly these bytes.
    """

    maximum_bytes: int = MAXIMUM_BYTES
    _kept: OrderedDict[Digest, tuple[AgentAdmissionIntent, int]] = field(factory=OrderedDict, init=False)
    _size: int = field(default=0, init=False)
    _lock: Lock = field(factory=Lock, init=False)
    _reader: AdmissionReader = field(factory=AdmissionReader, init=False)

    def __call__(self, digest: Digest, body: bytes) -> AgentAdmissionIntent:
        """Give the record of a body that hashes to the digest."""
        with self._lock:
            found = self._kept.get(digest)
            if found is not None:
                self._kept.move_to_end(digest)
                return found[0]
        intent = self._reader.read(body)
        self._keep(intent)
        return intent

    def read(self, body: bytes) -> AgentAdmissionIntent:
        """Give the record of a body that nobody has hashed yet.

        Raises:
            InvalidValueError: as ``decode``.
        """
        return self(digest_body(DigestPurpose.ADMISSION, body), body)

    def keep(self, intent: AgentAdmissionIntent) -> None:
        """Take a record that was made here: its canonical bytes need not be decoded any more."""
        self._reader.learn(intent)
        self._keep(intent)

    def _keep(self, intent: AgentAdmissionIntent) -> None:
        digest, size = intent.digest, OVERHEAD + len(intent.canonical)
        with self._lock:
            if digest not in self._kept:
                self._kept[digest] = (intent, size)
                self._size += size
            while self._size > self.maximum_bytes:
                _, (_, dropped) = self._kept.popitem(last=False)
                self._size -= dropped
