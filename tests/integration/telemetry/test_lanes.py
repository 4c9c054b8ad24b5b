"""What lanes count: sets, items that went alone, and repetitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

from agentruns.runtime.lane import HELD, Held, Lane, Parcel
from agentruns.runtime.retry import Retry

Run = Callable[[Coroutine[Any, Any, Any]], Any]
PointsOf = Callable[..., Mapping[Any, float]]

RETRY = Retry(attempts=3, initial_delay=timedelta(milliseconds=1), schema="agentruns")


def lane_of(send: Any) -> Lane[str, str]:
    return Lane(send, RETRY, 1, name="commits")


async def ask(lane: Lane[str, str], *items: str) -> list[str]:
    return list(await asyncio.gather(*(lane.ask(Parcel(item=item, keys=frozenset({item}))) for item in items)))


def test_a_set_counts_its_items_and_one_whose_row_is_held_goes_alone(run: Run, points_of: PointsOf) -> None:
    async def send(items: Sequence[str], *, is_alone: bool) -> Sequence[str | Held]:
        return [HELD if item == "b" and not is_alone else item for item in items]

    assert run(ask(lane_of(send), "a", "b", "c")) == ["a", "b", "c"]
    assert points_of("agentruns.set.items", "lane") == {("commits",): 1}
    assert points_of("agentruns.set.alone", "lane", "cause") == {("commits", "held"): 1}


def test_a_lost_connection_is_a_repetition_and_the_last_try_of_each_item_is_alone(
    run: Run, points_of: PointsOf
) -> None:
    async def send(items: Sequence[str], *, is_alone: bool) -> Sequence[str | Held]:
        if not is_alone:
            raise ConnectionResetError
        return list(items)

    assert run(ask(lane_of(send), "a", "b")) == ["a", "b"]
    assert points_of("agentruns.database.retries", "sqlstate_class") == {("none",): 2}
    assert points_of("agentruns.set.alone", "lane", "cause") == {("commits", "error"): 2}
    assert points_of("agentruns.set.items", "lane") == {}
