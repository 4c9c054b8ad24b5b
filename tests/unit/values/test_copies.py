"""A copy with other members is what ``evolve`` makes, without what the original keeps."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.budget_dimensions import COUNTER_DIMENSIONS, SUBSETS
from agentruns.domain.copies import copy_with
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import ByteCount, Superstep
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import InvalidValueError
from agentruns.testing.samples import TENANT, sample_id

STATE = RunState.empty(TENANT, sample_id(RunId, 1))


def test_a_copy_is_what_evolve_makes_and_leaves_the_original_alone() -> None:
    changes: dict[str, Any] = {"superstep": Superstep(3), "epoch": 7}
    copied = copy_with(STATE, changes)
    assert copied == evolve(STATE, **changes)
    assert type(copied) is RunState
    assert RunState.empty(TENANT, sample_id(RunId, 1)) == STATE


def test_what_a_record_keeps_outside_equality_is_left_behind() -> None:
    state = copy_with(STATE, {})
    object.__setattr__(state, "_planned", ("graph", "plan"))
    assert not hasattr(copy_with(state, {"epoch": 1}), "_planned")


def test_counters_that_stand_alone_are_replaced_as_by_the_constructor() -> None:
    related = {name for pair in SUBSETS for name in pair}
    for each in COUNTER_DIMENSIONS:
        if each.name not in related:
            counters: dict[str, Any] = {"event_bytes": 5, each.name: 9}
            made = BudgetUsage.of(event_bytes=5).with_counters({each.name: each.counter(9)})
            assert made == BudgetUsage.of(**counters)


def test_a_counter_within_another_is_still_held_against_it() -> None:
    for subset, _ in SUBSETS:
        (counter,) = [each.counter for each in COUNTER_DIMENSIONS if each.name == subset]
        with pytest.raises(InvalidValueError) as refused:
            BudgetUsage.zero().with_counters({subset: counter(1)})
        assert refused.value.reason == "subset_exceeds_inclusive"
    assert BudgetUsage.zero().with_counters({"event_bytes": ByteCount(2)}).event_bytes == ByteCount(2)
