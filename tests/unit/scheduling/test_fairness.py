"""A policy of shares: what it takes, its bytes, and the cycle that it makes."""

from __future__ import annotations

from typing import Any

import pytest

from agentruns.domain.digests import DigestPurpose, digest_body
from agentruns.domain.fairness import FairnessCycle, TenantFairnessPolicy, TenantWeight
from agentruns.domain.scalars import TenantId
from agentruns.domain.wire import decode
from agentruns.errors import InvalidValueError

A, B = TenantId("a"), TenantId("b")


def test_the_bytes_of_a_policy_are_sorted_by_tenant_and_its_weights_are_decimals() -> None:
    policy = TenantFairnessPolicy.of({"b": 1, "a": 3})
    expected = (
        b'{"algorithm":"smooth_weighted_round_robin_v1",'
        b'"tenants":[{"tenant_id":"a","weight":"3"},{"tenant_id":"b","weight":"1"}]}'
    )
    assert policy.canonical == expected
    assert policy.digest == digest_body(DigestPurpose.FAIRNESS_POLICY, expected)
    assert decode(expected, TenantFairnessPolicy) == policy


def test_three_to_one_is_the_cycle_of_the_contract() -> None:
    cycle = FairnessCycle(TenantFairnessPolicy.of({"a": 3, "b": 1}))
    assert cycle.turns == (A, A, B, A)
    assert cycle.bounds == {A: 2, B: 4}
    assert cycle.slots == {A: (0, 1, 3), B: (2,)}


def test_a_tenant_alone_has_every_turn() -> None:
    cycle = FairnessCycle(TenantFairnessPolicy.of({"a": 2}))
    assert (cycle.turns, cycle.bounds) == ((A, A), {A: 1})


def test_of_equal_scores_the_smallest_id_goes_first() -> None:
    assert FairnessCycle(TenantFairnessPolicy.of({"b": 1, "B": 1, "a": 1})).turns == (TenantId("B"), A, B)


@pytest.mark.parametrize(
    ("next_slot", "eligible", "count", "taken"),
    [
        (0, [A, B], 5, [0, 1, 2, 3, 0]),
        (1, [A], 4, [1, 3, 0, 1]),
        (3, [B], 2, [2, 2]),
        (2, [A], 1, [3]),
        (3, [A, B], 2, [3, 0]),
        (0, [], 3, []),
    ],
)
def test_a_walk_passes_over_who_is_not_eligible(
    next_slot: int, eligible: list[TenantId], count: int, taken: list[int]
) -> None:
    assert FairnessCycle(TenantFairnessPolicy.of({"a": 3, "b": 1})).walk(next_slot, eligible, count) == taken


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ({}, "empty"),
        ({"a": 0}, "out_of_range"),
        ({"a": 1_025}, "out_of_range"),
        ({"a": True}, "wrong_type"),
        ({f"t{number}": 1 for number in range(1_025)}, "too_long"),
        ({f"t{number}": 1_024 for number in range(5)}, "out_of_range"),
        ({"a b": 1}, "invalid_byte"),
    ],
)
def test_weights_have_bounds(weights: Any, reason: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        TenantFairnessPolicy.of(weights)
    assert refused.value.reason == reason


def test_the_bounds_themselves_are_accepted() -> None:
    assert len(FairnessCycle(TenantFairnessPolicy.of({f"t{number}": 1_024 for number in range(4)}))) == 4_096
    assert len(FairnessCycle(TenantFairnessPolicy.of({f"t{number}": 4 for number in range(1_024)}))) == 4_096


@pytest.mark.parametrize(("first", "reason"), [("a", "duplicate"), ("b", "not_ascending")])
def test_tenants_of_a_record_ascend(first: str, reason: str) -> None:
    tenants = tuple(TenantWeight(tenant_id=TenantId(each), weight=1) for each in (first, "a"))
    with pytest.raises(InvalidValueError) as refused:
        TenantFairnessPolicy(tenants=tenants)
    assert (refused.value.reason, refused.value.path) == (reason, ("tenants", 1))


def test_another_algorithm_is_refused() -> None:
    with pytest.raises(InvalidValueError) as refused:
        decode(b'{"algorithm":"lottery","tenants":[{"tenant_id":"a","weight":"1"}]}', TenantFairnessPolicy)
    assert (refused.value.reason, refused.value.path) == ("unsupported_algorithm", ("algorithm",))
