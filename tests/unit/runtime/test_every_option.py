"""No option takes what is no duration or count in its range: nothing waits or polls for ever."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from attrs import fields

from agentruns.errors import InvalidOptionError
from agentruns.operations.retention_policy import RetentionPolicy
from agentruns.runtime.driver.options import DurableGraphDriverOptions, GraphReplayLimits
from agentruns.runtime.node_retry import NodeRetry
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.options import StoreOptions

#: Each class with what it cannot be made without.
CLASSES: dict[type[Any], dict[str, Any]] = {
    StoreOptions: {},
    DurableGraphDriverOptions: {},
    GraphReplayLimits: {},
    AgentWorkerOptions: {},
    NodeRetry: {"on": (ValueError,)},
    RetentionPolicy: dict.fromkeys(("keep_succeeded", "keep_failed", "keep_cancelled"), timedelta(days=7)),
}
NO_NUMBERS: tuple[Any, ...] = (math.nan, math.inf, -math.inf, True, -1, "1")
#: Options for which nothing at all is a value: no pause, no wait, no such look.
MAY_BE_ZERO = {("NodeRetry", "delay"), ("NodeRetry", "maximum_delay"), ("AgentWorkerOptions", "drain_timeout")}


def options() -> Iterator[Any]:
    for cls, given in CLASSES.items():
        for each in fields(cls):
            if any(word in str(each.type) for word in ("int", "float", "timedelta")) and each.init:
                yield pytest.param(cls, given, each.name, id=f"{cls.__name__}.{each.name}")


def refused(cls: type[Any], given: dict[str, Any], name: str, value: Any) -> InvalidOptionError:
    with pytest.raises(InvalidOptionError) as refusal:
        cls(**{**given, name: value})
    return refusal.value


@pytest.mark.parametrize(("cls", "given", "name"), list(options()))
def test_Q3_what_is_out_of_range_is_refused_with_the_range(cls: type[Any], given: dict[str, Any], name: str) -> None:
    is_duration = "timedelta" in str(getattr(fields(cls), name).type)
    wrong = [*NO_NUMBERS, timedelta(microseconds=-1), timedelta(days=10**6)] if is_duration else [*NO_NUMBERS, 10**12]
    nothing: Any = timedelta(0) if is_duration else 0
    if (cls.__name__, name) not in MAY_BE_ZERO:
        wrong.append(nothing)
    for value in wrong:
        error = refused(cls, given, name, value)
        assert error.option == name
        assert error.bound
