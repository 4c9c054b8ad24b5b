"""Records that are used more than once keep their canonical bytes and their digest."""

from __future__ import annotations

from typing import ClassVar

from agentruns.domain.digests import Digest, DigestPurpose, digest_body, plain_digest
from agentruns.domain.encoding import record_bytes


class KeptBytes:
    """Inherit from this, first, to encode and to digest a frozen record once in its life.

    What is kept stands outside equality, ``repr``, wire form and pickles. It is computed on first use; only ``decode``
    sets it, with the bytes that it has just compared.
    """

    __slots__ = ("_kept_bytes", "_kept_digest")

    keeps_bytes: ClassVar[bool] = True
    #: What the digest is for; without a purpose it is plain.
    digest_purpose: ClassVar[DigestPurpose | None] = None

    @property
    def canonical(self) -> bytes:
        """The canonical bytes of the wire form.

        Raises:
            InvalidValueError: ``too_large`` for the bound that the class states.
        """
        kept: bytes | None = getattr(self, "_kept_bytes", None)
        if kept is None:
            kept = record_bytes(self)
            keep_bytes(self, kept)
        return kept

    @property
    def digest(self) -> Digest:
        """The digest of the canonical bytes, under the purpose of the class."""
        kept: Digest | None = getattr(self, "_kept_digest", None)
        if kept is None:
            purpose, data = self.digest_purpose, self.canonical
            kept = plain_digest(data) if purpose is None else digest_body(purpose, data)
            object.__setattr__(self, "_kept_digest", kept)
        return kept


def keep_bytes(record: KeptBytes, data: bytes) -> None:
    """Set the bytes of a record that are known to be its canonical ones."""
    object.__setattr__(record, "_kept_bytes", data)
