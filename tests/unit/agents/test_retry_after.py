"""The short way in which a node asks for another attempt."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import agentruns
from agentruns import DurationMillis, FailureCategory, NodeFailedError, SafeAfter
from agentruns.errors import InvalidValueError

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial.md"


def test_a_node_asks_for_another_attempt_in_one_call() -> None:
    failure = NodeFailedError.retry_after(timedelta(seconds=2), "busy", code="review.busy").failure
    assert failure.retry_advice == SafeAfter(delay=DurationMillis(2_000))
    assert failure.category is FailureCategory.DEPENDENCY_UNAVAILABLE
    assert (failure.code.text, failure.origin.text, failure.message) == ("review.busy", "application", "busy")


def test_a_delay_has_whole_milliseconds_and_thirty_days_at_most() -> None:
    assert SafeAfter.of(timedelta(days=30)).delay == DurationMillis(30 * 24 * 60 * 60 * 1_000)
    for delay in (timedelta(microseconds=1), timedelta(seconds=-1), timedelta(days=30, milliseconds=1)):
        with pytest.raises(InvalidValueError):
            NodeFailedError.retry_after(delay)


def test_the_node_of_the_tutorial_asks_once() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "retry_after" in block)
    review = SimpleNamespace(node=lambda **_: lambda function: function)
    names: dict[str, Any] = {**{name: getattr(agentruns, name) for name in ("GraphNodeContext", "Finish")}}
    names |= {"NodeFailedError": NodeFailedError, "timedelta": timedelta, "review": review}
    exec(block, names)  # noqa: S102 - our own document
    state = {"words": 1, "mood": "good", "topic": "other"}
    with pytest.raises(NodeFailedError) as asked:
        asyncio.run(names["answer"](SimpleNamespace(attempt=1, state=state)))
    assert asked.value.failure.retry_advice == SafeAfter.of(timedelta(seconds=2))
    assert asyncio.run(names["answer"](SimpleNamespace(attempt=2, state=state))).output == state
