"""What agents, models and tools say about themselves."""

from __future__ import annotations

from enum import Enum, unique

from attrs import field, frozen

from agentruns.domain.identity import CapabilityIdentity
from agentruns.domain.members import check_members
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.texts import check_public_text
from agentruns.errors import InvalidValueError

MAX_TITLE_BYTES = 128
MAX_SUMMARY_BYTES = 4_096


@unique
class CapabilityKind(Enum):
    """Say what a capability is."""

    AGENT = "agent"
    MODEL = "model"
    TOOL = "tool"


@unique
class CapabilityLifecycle(Enum):
    """Say whether a capability may be used: ``RETIRED`` permits no new use, and old records stay readable."""

    ACTIVE = "active"
    DEPRECATED = "deprecated"
    RETIRED = "retired"


@frozen(kw_only=True)
class CapabilityMetadata:
    """Introduce a capability.

    Attributes:
        identity: who owns it, its name and version. Other content under the same identity is a conflict.
        kind: what it is.
        lifecycle: whether it may be used.
        required_scopes: what a principal must have been granted to use it.
        title: 1..128 bytes of public text on one line.
        summary: 1..4 096 bytes of public text on one line.
    """

    identity: CapabilityIdentity
    kind: CapabilityKind
    lifecycle: CapabilityLifecycle
    required_scopes: ScopeSet
    title: str | None = field(default=None, repr=False)
    summary: str | None = field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.title is not None:
            check_public_text("CapabilityMetadata", self.title, max_bytes=MAX_TITLE_BYTES)
        if self.summary is not None:
            check_public_text("CapabilityMetadata", self.summary, max_bytes=MAX_SUMMARY_BYTES)

    @property
    def is_retired(self) -> bool:
        """No new use is permitted."""
        return self.lifecycle is CapabilityLifecycle.RETIRED

    def check_kind(self, owner: object, kind: CapabilityKind) -> None:
        """Refuse metadata of another kind for ``owner``.

        Raises:
            InvalidValueError: ``wrong_kind``.
        """
        if self.kind is not kind:
            raise InvalidValueError(type_name=type(owner).__name__, reason="wrong_kind")
