from __future__ import annotations

from typing import Any

import pytest

from agentruns.domain.failure import FailureCategory, NeverRetry, SafeAfter
from agentruns.domain.failure_details import GRAPH_FAILURE_DETAILS
from agentruns.domain.numbers import DurationMillis
from agentruns.errors import InvalidOptionError
from agentruns.runtime.node_retry import NodeRetry


def test_delays_grow_and_are_clamped_and_the_last_attempt_is_final() -> None:
    retry = NodeRetry(on=(TimeoutError,), delay=1.5, factor=2.0, maximum_delay=5.0, attempts=4)
    assert [retry.advice(attempt) for attempt in range(1, 6)] == [
        SafeAfter(delay=DurationMillis(1_500)),
        SafeAfter(delay=DurationMillis(3_000)),
        SafeAfter(delay=DurationMillis(5_000)),
        NeverRetry(),
        NeverRetry(),
    ]


def test_one_attempt_is_final_at_once() -> None:
    assert NodeRetry(on=(TimeoutError,), attempts=1).advice(1) == NeverRetry()


def test_extremes_do_not_overflow() -> None:
    retry = NodeRetry(on=(OSError,), delay=2_592_000, factor=100, maximum_delay=2_592_000, attempts=64)
    assert retry.advice(63) == SafeAfter(delay=DurationMillis(2_592_000_000))


def test_the_failure_names_the_class_and_nothing_else() -> None:
    failure = NodeRetry(on=(TimeoutError,)).failure(TimeoutError("secret"), attempt=1)
    assert failure.category is FailureCategory.INTERNAL
    assert str(failure.code) == "runtime.node.exception"
    assert str(failure.origin) == "agentruns.runtime.node"
    assert failure.retry_advice == SafeAfter(delay=DurationMillis(1_000))
    assert failure.details is not None
    assert failure.details.schema == GRAPH_FAILURE_DETAILS
    assert failure.details.value.value == {"exception_type": "builtins.TimeoutError"}
    assert "secret" not in failure.message


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"on": ()}, "on"),
        ({"on": TimeoutError}, "on"),
        ({"on": (KeyboardInterrupt,)}, "on"),
        ({"on": ("TimeoutError",)}, "on"),
        *(
            ({name: bad}, name)
            for name in ("delay", "factor", "maximum_delay")
            for bad in (float("nan"), float("inf"), -1, True, "1")
        ),
        ({"delay": 2_592_001}, "delay"),
        ({"factor": 0}, "factor"),
        ({"factor": 100.5}, "factor"),
        ({"maximum_delay": 2_592_001}, "maximum_delay"),
        *(({"attempts": bad}, "attempts") for bad in (0, -1, 65, 1.0, True, float("nan"))),
    ],
)
def test_options_outside_their_bounds(options: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        NodeRetry(**{"on": (TimeoutError,), **options})
    assert caught.value.option == option
