"""What a completion may add to a run's usage, so that whatever follows it can still be counted."""

from __future__ import annotations

from typing import Any

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.ledger.counting import ROOM_OF_A_RUN, usage_with_completion, usage_with_output
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import InvalidValueError

MOST = 2**64 - 1
OWN = ("graph_steps", "retries", "output_bytes", "event_bytes", "checkpoint_bytes")
OTHERS = ("input_bytes", "input_tokens", "model_attempts", "tool_calls", "artifact_bytes")


def of(**counts: Any) -> BudgetUsage:
    return BudgetUsage.of(**counts)


@pytest.mark.parametrize("name", OWN)
def test_LIF_17_a_completion_leaves_room_for_what_the_run_counts_itself(name: str) -> None:
    most = MOST - ROOM_OF_A_RUN
    assert usage_with_completion(of(**{name: 5}), of(**{name: most - 5})) == of(**{name: most})
    with pytest.raises(InvalidValueError) as refused:
        usage_with_completion(of(**{name: 5}), of(**{name: most - 4}))
    assert refused.value.reason == "overflow"


@pytest.mark.parametrize("name", OTHERS)
def test_a_counter_to_which_only_work_adds_may_be_used_up(name: str) -> None:
    assert usage_with_completion(of(**{name: 5}), of(**{name: MOST - 5})) == of(**{name: MOST})
    with pytest.raises(InvalidValueError) as refused:
        usage_with_completion(of(**{name: 5}), of(**{name: MOST - 4}))
    assert refused.value.reason == "overflow"


def test_a_completion_that_brings_nothing_is_never_refused_for_what_the_run_has_counted() -> None:
    counted = of(event_bytes=MOST - ROOM_OF_A_RUN + 1)
    assert usage_with_completion(counted, of()) == counted
    assert usage_with_completion(counted, of(tool_calls=1)) == of(event_bytes=MOST - ROOM_OF_A_RUN + 1, tool_calls=1)


def test_costs_are_added_within_their_bounds() -> None:
    sixteen = of(known_costs={f"AA{chr(65 + place)}": 1 for place in range(16)})
    assert usage_with_completion(sixteen, of(known_costs={"AAA": 1})).known_costs[0].micro_units.value == 2
    for spent, reason in ({"ZZZ": 1}, "too_many_currencies"), ({"AAA": MOST}, "overflow"):
        with pytest.raises(InvalidValueError) as refused:
            usage_with_completion(sixteen, of(known_costs=spent))
        assert refused.value.reason == reason


def test_the_largest_output_of_a_success_can_be_added_to_the_largest_usage() -> None:
    largest = usage_with_completion(of(), of(output_bytes=MOST - ROOM_OF_A_RUN))
    output = BoundedJson.of({"text": "x" * 1000})
    assert usage_with_output(largest, output) == of(output_bytes=MOST - ROOM_OF_A_RUN + output.size)
