"""The records of a release: who and on what, and how much was verified before."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from agentruns.domain.digests import DigestPurpose, digest_body, plain_digest
from agentruns.domain.ids import QuarantineId
from agentruns.domain.numbers import ByteCount, ExecutionCount, JournalSequence, RunRevision
from agentruns.domain.operator_authority import OperatorAuthority
from agentruns.domain.quarantine import QuarantineRelease
from agentruns.domain.status import RunStatus
from agentruns.domain.verification_report import RunVerificationReport
from agentruns.domain.wire import decode, encode
from agentruns.testing.samples import TENANT, principal, run_ids, sample_id

DIGEST = plain_digest(b"{}")
RELEASE = QuarantineRelease(
    quarantine_id=sample_id(QuarantineId, 8),
    authority=OperatorAuthority(principal=principal(), reason="the page was restored"),
    evidence_digest=DIGEST,
    verification_digest=plain_digest(b"report"),
)
REPORT = RunVerificationReport(
    tenant_id=TENANT,
    run_id=run_ids().run_id,
    head_sequence=JournalSequence(7),
    head_digest=DIGEST,
    status=RunStatus.ACTIVE,
    revision=RunRevision(1),
    graph_digest=DIGEST,
    supersteps=ExecutionCount(2),
    attempts=ExecutionCount(3),
    results=ExecutionCount(4),
    waits=ExecutionCount(5),
    calls=ExecutionCount(6),
    isolations=ExecutionCount(1),
    bytes=ByteCount(8),
)


def test_the_body_of_a_release_says_who_and_on_what() -> None:
    assert RELEASE.canonical == (
        b'{"authority":{"principal":{"issuer":"https://issuer.example/","subject":"somebody"},'
        b'"reason":"the page was restored"},"evidence_digest":"' + str(DIGEST).encode() + b'",'
        b'"quarantine_id":"0198c0de-0000-7000-8000-000000000008",'
        b'"verification_digest":"' + str(plain_digest(b"report")).encode() + b'"}'
    )
    assert RELEASE.digest == digest_body(DigestPurpose.QUARANTINE_RELEASE, RELEASE.canonical)
    assert decode(RELEASE.canonical, QuarantineRelease) == RELEASE


def test_neither_repr_repeats_the_reason() -> None:
    assert "page" not in repr(RELEASE)


def test_equal_readings_have_one_digest_and_every_count_changes_it() -> None:
    assert REPORT.digest == evolve(REPORT).digest == plain_digest(encode(REPORT))
    counts: list[dict[str, Any]] = [
        {name: ExecutionCount(99)} for name in ("supersteps", "attempts", "results", "waits", "calls", "isolations")
    ]
    for changed in counts:
        assert evolve(REPORT, **changed).digest != REPORT.digest
    assert evolve(REPORT, head_sequence=JournalSequence(8)).digest != REPORT.digest
    assert decode(REPORT.canonical, RunVerificationReport) == REPORT
