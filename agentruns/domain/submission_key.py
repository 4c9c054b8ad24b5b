"""The key by which a client finds its run again. Private correlation data, never stored, logged or shown."""

from __future__ import annotations

import re
from typing import NoReturn, Self

from uuid_utils import uuid7

from agentruns.domain.scalars import TextScalar


class AgentSubmissionKey(TextScalar):
    """Name a submission within its tenant: the same key with other content is a conflict, not a second run.

    It proves nothing about who may submit or read. Only its digest is stored; ``str`` gives the raw text to the client
    that has to keep it.
    """

    __slots__ = ()
    grammar = re.compile(r"[A-Za-z0-9._~-]+")
    foreign = re.compile(r"[^A-Za-z0-9._~-]")
    shortest = 16

    @classmethod
    def generate(cls) -> Self:
        """Make a fresh key: 73 characters, 148 random bits."""
        return cls(f"{uuid7()}.{uuid7()}")

    def __repr__(self) -> str:
        return "AgentSubmissionKey(redacted)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a submission key is not pickled")
