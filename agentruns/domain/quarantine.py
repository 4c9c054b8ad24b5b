"""Why a run was isolated, and on what evidence it was let go."""

from __future__ import annotations

import re
from enum import Enum, unique
from typing import ClassVar

from attrs import frozen

from agentruns.domain.digests import Digest, DigestPurpose
from agentruns.domain.ids import QuarantineId
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.errors import InvalidValueError

_COMPONENT = re.compile(r"[a-z0-9._:-]{1,128}")


@unique
class QuarantineCause(Enum):
    """Say what was found, or that an operator decided."""

    INTEGRITY_FAILURE = "integrity_failure"
    UNSUPPORTED_SCHEMA = "unsupported_schema"
    MISSING_ARTIFACT = "missing_artifact"
    CROSS_TENANT_REFERENCE = "cross_tenant_reference"
    PROJECTION_MISMATCH = "projection_mismatch"
    FENCING_EPOCH_EXHAUSTED = "fencing_epoch_exhausted"
    OPERATOR_POLICY = "operator_policy"


@frozen(kw_only=True)
class Quarantine(KeptBytes):
    """Record why a run was isolated. The database's instant stands beside it and is no part of it.

    Attributes:
        quarantine_id: of this record; the first one of a run wins.
        cause: what was found.
        component: the rule or the ``table.column`` that does not verify; 1..128 of ``[a-z0-9._:-]``.
        evidence_digest: of what was found, kept elsewhere.
        expected_head: digest of the journal's head at which it was found; a run that moved on is not isolated.
        epoch: of the worker that found it; absent when the control plane decided.
    """

    digest_purpose: ClassVar[DigestPurpose] = DigestPurpose.QUARANTINE
    max_wire_bytes: ClassVar[int] = 64 * 1024

    quarantine_id: QuarantineId
    cause: QuarantineCause
    component: str
    evidence_digest: Digest
    expected_head: Digest | None = None
    epoch: FencingEpoch | None = None

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if not _COMPONENT.fullmatch(self.component):
            raise InvalidValueError(type_name="Quarantine", reason="invalid_component")


@frozen(kw_only=True)
class QuarantineRelease(KeptBytes):
    """Record who let an isolated run go on, and on what evidence. As with the quarantine, the instant stands beside it.

    Attributes:
        quarantine_id: of the record that is answered; there is one release of each.
        authority: who decided, and why.
        evidence_digest: plain digest of what was decided on, kept elsewhere.
        verification_digest: plain digest of the report of what was verified before.
    """

    digest_purpose: ClassVar[DigestPurpose] = DigestPurpose.QUARANTINE_RELEASE
    max_wire_bytes: ClassVar[int] = 64 * 1024

    quarantine_id: QuarantineId
    authority: OperatorAuthority
    evidence_digest: Digest
    verification_digest: Digest

    def __attrs_post_init__(self) -> None:
        check_members(self)
