"""The laws of fair shares, for every map of weights and every sequence of who has work."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.fairness import FairnessCycle, TenantFairnessPolicy
from agentruns.domain.scalars import TenantId

TENANTS = [f"t{number}" for number in range(6)]
WEIGHTS = st.dictionaries(st.sampled_from(TENANTS), st.integers(1, 9), min_size=1)


@st.composite
def shards(draw: st.DrawFn) -> FairnessCycle:
    return FairnessCycle(TenantFairnessPolicy.of(draw(WEIGHTS)))


@given(WEIGHTS, st.randoms(use_true_random=False))
def test_SCH_03_counts_are_the_weights_the_order_of_input_is_nothing_and_bounds_are_the_measured_gaps(
    weights: dict[str, int], random: Random
) -> None:
    cycle = FairnessCycle(TenantFairnessPolicy.of(weights))
    assert Counter(tenant.text for tenant in cycle.turns) == weights
    shuffled = list(weights.items())
    random.shuffle(shuffled)
    assert FairnessCycle(TenantFairnessPolicy.of(dict(shuffled))).turns == cycle.turns
    for tenant in cycle.slots:
        places = [place for place, turn in enumerate(cycle.turns * 3) if turn == tenant]
        assert max(after - before for before, after in pairwise(places)) == cycle.bounds[tenant]


@given(shards(), st.integers(0, 60), st.data())
def test_SCH_04_who_is_eligible_for_its_bound_of_reservations_is_taken_in_one_of_them(
    cycle: FairnessCycle, start: int, data: st.DataObject
) -> None:
    starved = data.draw(st.sampled_from(sorted(cycle.slots)))
    others = st.sets(st.sampled_from(sorted(cycle.slots)))
    next_slot, taken = start % len(cycle), list[TenantId]()
    for _ in range(cycle.bounds[starved]):
        (slot,) = cycle.walk(next_slot, data.draw(others) | {starved}, 1)
        taken.append(cycle.turns[slot])
        next_slot = (slot + 1) % len(cycle)
    assert starved in taken


@given(shards(), st.integers(0, 60))
def test_SCH_05_when_nobody_is_idle_a_cycle_of_reservations_takes_each_as_often_as_its_weight(
    cycle: FairnessCycle, start: int
) -> None:
    slots = cycle.walk(start % len(cycle), cycle.slots, len(cycle))
    assert Counter(cycle.turns[slot] for slot in slots) == {
        each.tenant_id: each.weight for each in cycle.policy.tenants
    }


@given(shards(), st.integers(0, 60), st.lists(st.integers(1, 7), max_size=6), st.data())
def test_SCH_06_a_walk_of_many_is_many_walks_of_one(
    cycle: FairnessCycle, start: int, pieces: list[int], data: st.DataObject
) -> None:
    eligible = data.draw(st.sets(st.sampled_from(sorted(cycle.slots)), min_size=1))
    next_slot, taken = start % len(cycle), list[int]()
    for count in pieces:
        taken += cycle.walk(next_slot, eligible, count)
        next_slot = (taken[-1] + 1) % len(cycle)
    assert taken == cycle.walk(start % len(cycle), eligible, sum(pieces))
