"""Leases, quarantines and statuses."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.digests import DigestPurpose, digest_body, plain_digest
from agentruns.domain.ids import AttemptId, QuarantineId
from agentruns.domain.lease import RunFence, RunLease
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.quarantine import Quarantine, QuarantineCause
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode, encode, to_wire
from agentruns.errors import InvalidValueError
from agentruns.testing.samples import TENANT, run_ids, sample_id

FENCE = RunFence(tenant_id=TENANT, run_id=run_ids().run_id, attempt_id=sample_id(AttemptId, 7), epoch=FencingEpoch(3))
LEASE = RunLease(fence=FENCE, acquired_at=Timestamp(10), renewed_at=Timestamp(20), expires_at=Timestamp(30))
FOUND = Quarantine(
    quarantine_id=sample_id(QuarantineId, 8),
    cause=QuarantineCause.PROJECTION_MISMATCH,
    component="runs.head_digest",
    evidence_digest=plain_digest(b"evidence"),
)


@pytest.mark.parametrize(("acquired", "renewed", "expires"), [(20, 20, 21), (10, 20, 21)])
def test_a_lease_in_order_is_accepted(acquired: int, renewed: int, expires: int) -> None:
    instants = Timestamp(acquired), Timestamp(renewed), Timestamp(expires)
    lease = RunLease(fence=FENCE, acquired_at=instants[0], renewed_at=instants[1], expires_at=instants[2])
    assert (lease.acquired_at, lease.renewed_at, lease.expires_at) == instants


@pytest.mark.parametrize(("acquired", "renewed", "expires"), [(21, 20, 30), (10, 20, 20), (10, 20, 19)])
def test_a_lease_out_of_order_is_refused(acquired: int, renewed: int, expires: int) -> None:
    with pytest.raises(InvalidValueError) as caught:
        RunLease(
            fence=FENCE,
            acquired_at=Timestamp(acquired),
            renewed_at=Timestamp(renewed),
            expires_at=Timestamp(expires),
        )
    assert (caught.value.type_name, caught.value.reason) == ("RunLease", "clock_regression")


@pytest.mark.parametrize(("now", "is_live"), [(19, False), (20, True), (29, True), (30, False), (31, False)])
def test_expiry_is_exclusive(now: int, is_live: bool) -> None:  # noqa: FBT001  # a parameter
    assert LEASE.is_live(Timestamp(now)) is is_live


def test_a_fence_has_members_of_its_classes() -> None:
    with pytest.raises(InvalidValueError, match="wrong_type"):
        evolve(FENCE, epoch=3)  # type: ignore[arg-type]  # a plain int


def test_a_quarantine_leaves_out_what_it_lacks() -> None:
    assert to_wire(FOUND) == {
        "quarantine_id": "0198c0de-0000-7000-8000-000000000008",
        "cause": "projection_mismatch",
        "component": "runs.head_digest",
        "evidence_digest": str(plain_digest(b"evidence")),
    }


def test_the_body_of_a_quarantine_is_its_canonical_bytes() -> None:
    fenced = evolve(FOUND, expected_head=plain_digest(b"head"), epoch=FencingEpoch(3))
    for record in (FOUND, fenced):
        assert record.canonical == encode(record) == canonical_bytes(to_wire(record))
        assert record.digest == digest_body(DigestPurpose.QUARANTINE, record.canonical)
        assert decode(record.canonical, Quarantine) == record
    assert fenced.digest != FOUND.digest


@pytest.mark.parametrize("component", ["a", "barrier", "run_events.digest", "x:y-z_0", "x" * 128])
def test_a_component_is_a_rule_or_a_column(component: str) -> None:
    assert evolve(FOUND, component=component).component == component


@pytest.mark.parametrize("component", ["", "x" * 129, "Upper", "a b", "a\n", "é"])
def test_no_other_component_is_accepted(component: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        evolve(FOUND, component=component)
    assert (caught.value.type_name, caught.value.reason) == ("Quarantine", "invalid_component")


def test_the_causes_are_closed() -> None:
    assert [cause.value for cause in QuarantineCause] == [
        "integrity_failure",
        "unsupported_schema",
        "missing_artifact",
        "cross_tenant_reference",
        "projection_mismatch",
        "fencing_epoch_exhausted",
        "operator_policy",
    ]


STATUS_TABLE: list[tuple[Any, bool, bool]] = [
    ("pending", False, False),
    ("active", False, True),
    ("waiting", False, False),
    ("cancellation_requested", False, True),
    ("succeeded", True, False),
    ("failed", True, False),
    ("cancelled", True, False),
]


def test_a_status_says_what_may_happen_next() -> None:
    assert [(str(each), each.is_terminal, each.is_claimable) for each in RunStatus] == STATUS_TABLE
