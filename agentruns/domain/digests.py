"""SHA-256 digests: plain ones that a person recomputes with a tool, and ones separated by the purpose they serve."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from hashlib import sha256
from typing import Final, Self

from attrs import frozen

from agentruns.domain.canonical import JsonTree, canonical_bytes
from agentruns.domain.scalars import Scalar, refuse
from agentruns.errors import InvalidValueError

_PREFIX = "sha256:"
_TEXT_LENGTH = 71
_RAW_LENGTH = 32
_TEXT = re.compile(r"sha256:[0-9a-f]{64}")
_FOREIGN = re.compile(r"[^0-9a-f]")


@frozen(eq=False, repr=False, weakref_slot=False)
class Digest(Scalar):
    """Hold a SHA-256. Its text is ``sha256:`` and 64 lowercase hexadecimal digits.

    Attributes:
        raw: the 32 bytes, as a column holds them.
    """

    raw: bytes

    def __attrs_post_init__(self) -> None:
        if type(self.raw) is not bytes:
            raise TypeError("Digest takes bytes")
        if len(self.raw) != _RAW_LENGTH:
            raise refuse(self, "too_short" if len(self.raw) < _RAW_LENGTH else "too_long")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the 71 characters."""
        if type(text) is not str:
            raise TypeError("Digest is read from str")
        if not _TEXT.fullmatch(text):
            raise cls._refusal(text)
        return cls(bytes.fromhex(text[len(_PREFIX) :]))

    @classmethod
    def _refusal(cls, text: str) -> InvalidValueError:
        """Say which rule breaks first, in the stated order of checks."""
        if len(text.encode("utf-8", "surrogatepass")) > _TEXT_LENGTH:
            return refuse(cls, "too_long")
        algorithm, colon, digits = text.partition(":")
        if not colon:
            return refuse(cls, "invalid_format")
        if algorithm != "sha256":
            return refuse(cls, "unsupported_algorithm")
        if len(text.encode("utf-8", "surrogatepass")) < _TEXT_LENGTH:
            return refuse(cls, "too_short")
        foreign = _FOREIGN.findall(digits)
        uppercase = all(character in "ABCDEF" for character in foreign)
        return refuse(
            cls, "not_canonical" if uppercase else "invalid_byte", offset=len(_PREFIX) + digits.index(foreign[0])
        )

    @property
    def hex(self) -> str:
        """The 64 digits without the algorithm."""
        return self.raw.hex()

    def __str__(self) -> str:
        return _PREFIX + self.raw.hex()

    def __repr__(self) -> str:
        return f"Digest({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return self.raw == other.raw if isinstance(other, Digest) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.raw)

    def __lt__(self, other: Digest) -> bool:
        return self.raw < other.raw if isinstance(other, Digest) else NotImplemented

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self.raw,)


class DigestPurpose(Enum):
    """Separate what is hashed for one purpose from everything that is hashed for another.

    A change of a preimage's members, meaning or spelling is a new version of its domain; old records keep theirs.
    """

    SUBMISSION_KEY = "submission-key"
    KEYLESS_ADMISSION = "keyless-admission"
    SUBMISSION = "submission"
    EVENT = "event"
    CHECKPOINT = "checkpoint"
    ADMISSION = "admission"
    STATE = "state"
    NODE_RESULT = "node-result"
    NODE_FAILURE = "node-failure"
    WAIT = "wait"
    WAIT_RESOLUTION = "wait-resolution"
    CANCELLATION_REQUEST = "cancellation-request"
    OUTCOME = "outcome"
    MODEL_INTENT = "model-intent"
    TOOL_INTENT = "tool-intent"
    MODEL_RESPONSE = "model-response"
    MODEL_ERROR = "model-error"
    TOOL_RESULT = "tool-result"
    TOOL_ERROR = "tool-error"
    ACTIVATION = "activation"
    EFFECT_KEY = "effect-key"
    DERIVED_ID = "derived-id"
    TOOL_IDEMPOTENCY_KEY = "tool-idempotency-key"
    AGENT_ACTION = "agent-action"
    AGENT_CONTRACT = "agent-contract"
    QUARANTINE = "quarantine"
    QUARANTINE_RELEASE = "quarantine-release"
    OUTBOX_DESTINATION = "outbox-destination"
    OUTBOX_RESULT = "outbox-result"
    OUTBOX_DELIVERY = "outbox-delivery"
    FAIRNESS_POLICY = "fairness-policy"
    RETENTION_RECEIPT = "retention-receipt"

    domain: bytes

    def __init__(self, purpose: str) -> None:
        self.domain = b"agentruns/" + purpose.encode("ascii") + b"/v1\0"


def plain_digest(data: bytes) -> Digest:
    """Hash canonical bytes and nothing else."""
    return _digest_of(sha256(data).digest())


def digest_body(purpose: DigestPurpose, *parts: bytes) -> Digest:
    """Hash a preimage under its purpose: the bytes of a body, or parts that follow each other."""
    return _digest_of(sha256(purpose.domain + b"".join(parts)).digest())


def _digest_of(raw: bytes) -> Digest:
    """Make a digest of what a hash gave, past the constructor: its checks cannot fail here."""
    made = object.__new__(Digest)
    _set_raw(made, raw)
    return made


_set_raw: Final[Callable[[Digest, bytes], None]] = Digest.__dict__["raw"].__set__


def digest_members(purpose: DigestPurpose, members: Mapping[str, JsonTree]) -> Digest:
    """Hash a closed object that is not stored. Every member is stated; an absent optional is ``None``."""
    return digest_body(purpose, canonical_bytes(dict(members)))
