"""Who decided something about a run by hand, and why: a member of the body that records the decision."""

from __future__ import annotations

from typing import Final

from attrs import field, frozen

from agentruns.domain.identity import PrincipalIdentity
from agentruns.domain.members import check_members
from agentruns.domain.texts import check_public_text

MAX_REASON_BYTES: Final = 1_024


@frozen(kw_only=True)
class OperatorAuthority:
    """Say on whose word an operator acted. Nothing here verifies it, and no public snapshot shows it.

    Attributes:
        principal: who decided.
        reason: why; 1..1 024 bytes of text on one line.
    """

    principal: PrincipalIdentity
    reason: str = field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_public_text("OperatorAuthority", self.reason, max_bytes=MAX_REASON_BYTES)
