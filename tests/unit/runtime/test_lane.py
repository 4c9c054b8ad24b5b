"""The lane without a database: who goes with whom, and what becomes of each when a set fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest
from attrs import define, field

from agentruns.errors import InvariantError, StoreUnavailableError
from agentruns.runtime.lane import BULKY, HELD, MAXIMUM_ITEMS, Held, Lane, Parcel
from agentruns.runtime.retry import Retry

Sets = list[tuple[tuple[str, ...], bool]]


class Forbidden(Exception):  # noqa: N818
    """What a value that the server does not take raises."""


@define
class Server:
    """Answer items by their own names in capitals, and note every set that arrived, and whether it was sent alone.

    Attributes:
        gate: sets wait for it before they are answered.
        faults: raised by the next sets, one after the other; ``None`` is no fault.
        forbidden: an item that makes every set with it fail.
        held: items whose row somebody holds; only those sent alone get an answer.
    """

    gate: asyncio.Event = field(factory=asyncio.Event)
    faults: list[BaseException | None] = field(factory=list)
    forbidden: str = ""
    held: set[str] = field(factory=set)
    sets: Sets = field(factory=list)
    busy: int = 0
    busiest: int = 0

    async def __call__(self, items: Sequence[str], *, is_alone: bool) -> Sequence[str | Held]:
        self.sets.append((tuple(items), is_alone))
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            await self.gate.wait()
        finally:
            self.busy -= 1
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        if self.forbidden in items:
            raise Forbidden
        return [HELD if item in self.held and not is_alone else item.upper() for item in items]


def lane_of(server: Server, *, connections: int = 1, attempts: int = 3) -> Lane[str, str]:
    retry = Retry(attempts=attempts, initial_delay=timedelta(milliseconds=1), schema="agentruns")
    return Lane(server, retry, connections)


def parcel(item: str, *, key: str | None = None, size: int = 0) -> Parcel[str]:
    return Parcel(item=item, keys=frozenset({key or item}), size=size)


async def asked(lane: Lane[str, str], *parcels: Parcel[str]) -> list[asyncio.Task[str]]:
    """Ask for all, one after the other: what may go has gone before the next one asks."""
    tasks = []
    for each in parcels:
        tasks.append(asyncio.create_task(lane.ask(each)))
        await settled()
    return tasks


async def settled() -> None:
    """Let an item reach the lane, and the lane the server."""
    for _ in range(3):
        await asyncio.sleep(0)


def within(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(bounded())


def test_N6_DRV_19_one_item_goes_at_once_and_what_gathers_meanwhile_shares_the_next_set() -> None:
    async def work() -> None:
        server = Server()
        tasks = await asked(lane_of(server), *(parcel(each) for each in "abcde"))
        assert server.sets == [(("a",), False)]
        server.gate.set()
        assert await asyncio.gather(*tasks) == ["A", "B", "C", "D", "E"]
        assert server.sets == [(("a",), False), (("b", "c", "d", "e"), False)]

    within(work)


def test_what_one_turn_of_the_loop_brings_goes_together_in_a_share_for_each_connection() -> None:
    async def work() -> None:
        server = Server()
        server.gate.set()
        lane = lane_of(server, connections=2)
        assert await asyncio.gather(*(lane.ask(parcel(each)) for each in "abcde")) == ["A", "B", "C", "D", "E"]
        assert server.sets == [(("a", "b", "c"), False), (("d", "e"), False)]

    within(work)


def test_DRV_19_free_connections_share_what_is_pending() -> None:
    async def work() -> None:
        server = Server()
        lane = lane_of(server, connections=2)
        tasks = await asked(lane, *(parcel(each) for each in "abcdefg"))
        assert server.sets == [(("a",), False), (("b",), False)]
        server.gate.set()
        await asyncio.gather(*tasks)
        assert server.busiest == 2
        # Both are free when they look, and share what is pending.
        assert server.sets[2:] == [(tuple("cde"), False), (tuple("fg"), False)]

    within(work)


def test_DRV_21_a_lane_that_takes_all_shares_nothing_out_and_knows_no_greatest_set() -> None:
    async def work() -> None:
        server = Server()
        server.gate.set()
        retry = Retry(attempts=3, initial_delay=timedelta(milliseconds=1), schema="agentruns")
        lane: Lane[str, str] = Lane(server, retry, 2, takes_all=True)
        names = [f"item-{place}" for place in range(2 * MAXIMUM_ITEMS)]
        await asyncio.gather(*(lane.ask(parcel(each)) for each in names))
        assert server.sets == [(tuple(names), False)]

    within(work)


def test_a_key_is_once_in_a_set_and_in_one_set_at_a_time() -> None:
    async def work() -> None:
        server = Server()
        lane = lane_of(server, connections=2)
        tasks = await asked(
            lane, parcel("a", key="1"), parcel("b", key="1"), parcel("c", key="2"), parcel("d", key="1")
        )
        assert server.sets == [(("a",), False), (("c",), False)]
        server.gate.set()
        assert await asyncio.gather(*tasks) == ["A", "B", "C", "D"]
        assert server.sets[2:] == [(("b",), False), (("d",), False)]

    within(work)


def test_a_set_is_bounded_in_items_and_bytes() -> None:
    async def work() -> None:
        server = Server()
        lane = lane_of(server)
        lane.maximum_bytes = 10
        tasks = await asked(lane, parcel("a"), *(parcel(each, size=4) for each in "bcde"))
        many = await asked(lane, *(parcel(f"x{number}") for number in range(MAXIMUM_ITEMS + 3)))
        server.gate.set()
        await asyncio.gather(*tasks, *many)
        sizes = [len(each) for each, _ in server.sets]
        # "b" and "c" fill the bytes; what has none fills the items.
        assert server.sets[1][0][:2] == ("b", "c")
        assert sizes == [1, MAXIMUM_ITEMS, 7]

    within(work)


def test_a_bulky_item_travels_alone() -> None:
    async def work() -> None:
        server = Server()
        tasks = await asked(
            lane_of(server), parcel("a"), parcel("b"), parcel("huge", size=BULKY + 1), parcel("c"), parcel("d")
        )
        server.gate.set()
        await asyncio.gather(*tasks)
        assert [items for items, _ in server.sets] == [("a",), ("b", "c", "d"), ("huge",)]

    within(work)


def test_an_item_that_was_passed_over_goes_alone_beside_the_lane() -> None:
    async def work() -> None:
        server = Server(held={"b"})
        tasks = await asked(lane_of(server), *(parcel(each) for each in "abc"))
        server.gate.set()
        assert await asyncio.gather(*tasks) == ["A", "B", "C"]
        assert server.sets == [(("a",), False), (("b", "c"), False), (("b",), True)]

    within(work)


def test_DRV_20_a_refused_set_is_halved_until_the_culprit_stands_alone() -> None:
    async def work() -> None:
        server = Server(forbidden="f")
        tasks = await asked(lane_of(server), *(parcel(each) for each in "abcdefghi"))
        server.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) if isinstance(each, Exception) else each for each in answers] == [
            *"ABCDE",
            Forbidden,
            *"GHI",
        ]
        sent = [items for items, _ in server.sets]
        assert sent[1:] == [
            tuple("bcdefghi"),
            tuple("bcde"),
            tuple("fghi"),
            tuple("fg"),
            ("f",),
            ("g",),
            tuple("hi"),
            ("f",),
        ]
        assert server.sets[-1] == (("f",), True)

    within(work)


def test_S4_a_lost_connection_repeats_the_set_and_the_last_time_each_item_alone() -> None:
    async def work() -> None:
        server = Server(faults=[None, ConnectionError(), ConnectionError()])
        tasks = await asked(lane_of(server), *(parcel(each) for each in "abcd"))
        server.gate.set()
        assert await asyncio.gather(*tasks) == ["A", "B", "C", "D"]
        assert server.sets[1:3] == [(("b", "c", "d"), False)] * 2
        assert sorted(server.sets[3:]) == [((each,), True) for each in "bcd"]

    within(work)


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_an_item_is_tried_as_often_as_the_options_say_and_no_more(attempts: int) -> None:
    async def work() -> None:
        server = Server(faults=[ConnectionError()] * 100)
        server.gate.set()
        (task,) = await asked(lane_of(server, attempts=attempts), parcel("a"))
        with pytest.raises(StoreUnavailableError) as error:
            await task
        assert error.value.attempts == attempts
        assert len(server.sets) == attempts

    within(work)


def test_after_an_outage_a_large_set_costs_a_few_tries_and_not_many_for_each_item() -> None:
    async def work() -> None:
        server = Server(faults=[None, *[ConnectionError()] * 1000])
        tasks = await asked(lane_of(server), *(parcel(str(number)) for number in range(65)))
        server.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in answers[1:]} == {StoreUnavailableError}
        # The first item, the set twice, and each of its 64 items once more.
        assert len(server.sets) == 1 + 2 + 64

    within(work)


def test_S3_a_waiter_that_is_cancelled_withdraws_its_item() -> None:
    async def work() -> None:
        server = Server()
        tasks = await asked(lane_of(server), *(parcel(each) for each in "abc"))
        tasks[1].cancel()
        await asyncio.sleep(0)
        server.gate.set()
        assert await asyncio.gather(*tasks, return_exceptions=True) != []
        assert tasks[1].cancelled()
        assert [items for items, _ in server.sets] == [("a",), ("c",)]

    within(work)


def test_S3_a_waiter_that_is_cancelled_after_its_item_went_out_changes_nothing_for_its_set() -> None:
    async def work() -> None:
        server = Server()
        lane = lane_of(server)
        tasks = await asked(lane, *(parcel(each) for each in "abcd"))
        server.gate.set()
        await tasks[0]
        server.gate.clear()
        await settled()
        assert server.sets[1] == (("b", "c", "d"), False)
        tasks[2].cancel()
        await asyncio.sleep(0)
        server.gate.set()
        assert (await tasks[1], await tasks[3]) == ("B", "D")
        assert tasks[2].cancelled()
        # The key is free again: nobody is left who could hold it.
        assert await lane.ask(parcel("c")) == "C"

    within(work)


def test_a_statement_that_passes_over_an_item_sent_alone_is_a_fault() -> None:
    async def work() -> None:
        async def send(items: Sequence[str], *, is_alone: bool) -> Sequence[str | Held]:
            del is_alone
            return [HELD for _ in items]

        lane: Lane[str, str] = Lane(send, lane_of(Server()).retry, 1)
        with pytest.raises(InvariantError) as error:
            await lane.ask(parcel("a"))
        assert error.value.reason == "held_alone"

    within(work)
