"""How tenants are gathered until they are told of, without a database."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection

import pytest

from agentruns.domain.ids import RunId
from agentruns.errors import InvalidOptionError
from agentruns.runtime.notifier import INTERVAL, Notifier
from agentruns.store.options import check_schema_name
from agentruns.store.wake_ups import (
    ANY_TENANT,
    channel_of,
    ends_channel_of,
    ends_payloads_of,
    payloads_of,
    runs_of,
)

Within = Callable[[Callable[[], Awaitable[None]]], None]


class Line:
    """Take what is told, as slowly and as badly as a test wants."""

    def __init__(self, *, seconds: float = 0.0, fails: bool = False) -> None:
        self.told: list[list[str]] = []
        self.runs: list[list[str]] = []
        self.began: list[float] = []
        self.ended: list[float] = []
        self.seconds = seconds
        self.fails = fails

    async def send(self, tenants: Collection[str], ended: Collection[str]) -> int:
        self.began.append(time.monotonic())
        fails = self.fails  # as it was when the call began
        self.told.append(sorted(tenants))
        self.runs.append(sorted(ended))
        await asyncio.sleep(self.seconds)
        self.ended.append(time.monotonic())
        if fails:
            raise OSError("secret")
        return len(tenants) + bool(ended)


async def until(line: Line, count: int) -> None:
    async with asyncio.timeout(10):
        while len(line.told) < count:  # another task sends
            await asyncio.sleep(0.005)


def test_of_whom_is_told_while_a_statement_is_under_way_shares_the_next_one(within: Within) -> None:
    async def work() -> None:
        line = Line(seconds=0.05)
        notifier = Notifier(line.send, is_on=True)
        notifier.ready("b")
        notifier.ready("a")
        await until(line, 1)
        for tenant in "dcdc":
            notifier.ready(tenant)
        await notifier.close()
        assert line.told == [["a", "b"], ["c", "d"]]

    within(work)


def test_ends_of_runs_share_the_statements_of_tenants_and_are_told_of_alone_too(within: Within) -> None:
    async def work() -> None:
        line = Line(seconds=0.05)
        notifier = Notifier(line.send, is_on=True)
        notifier.ended("1")
        await until(line, 1)
        notifier.ended("3")
        notifier.ready("a")
        for run_id in "232":
            notifier.ended(run_id)
        await notifier.close()
        assert list(zip(line.told, line.runs, strict=True)) == [([], ["1"]), (["a"], ["2", "3"])]
        notifier.is_on = False
        notifier.ended("4")
        await notifier.close()
        assert len(line.runs) == 2

    within(work)


def test_SCH_13_at_most_one_statement_ends_and_another_begins_in_50_ms(within: Within) -> None:
    async def work() -> None:
        line = Line()
        notifier = Notifier(line.send, is_on=True)
        ends_at = time.monotonic() + 0.6
        while time.monotonic() < ends_at:
            notifier.ready("a")
            await asyncio.sleep(0.001)
        await notifier.close()
        assert 3 <= len(line.told) <= 13
        # The clock of the event loop may be read a moment before the statement begins, never after.
        assert all(began - ended >= INTERVAL - 0.001 for ended, began in zip(line.ended, line.began[1:], strict=False))
        assert len(line.began) == len(line.ended)

    within(work)


def test_a_pause_costs_the_next_one_nothing(within: Within) -> None:
    async def work() -> None:
        line = Line()
        notifier = Notifier(line.send, is_on=True)
        for count in (1, 2):
            await asyncio.sleep(INTERVAL)
            notifier.ready("a")
            # Two turns of the event loop, and no timer between them.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(line.told) == count
        await notifier.close()

    within(work)


def test_what_fails_is_forgotten_and_logged_once_without_its_words(
    within: Within, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        line = Line(fails=True)
        notifier = Notifier(line.send, is_on=True)
        with caplog.at_level(logging.DEBUG, "agentruns"):
            for count in (1, 2, 3):
                notifier.ready("a")
                await until(line, count)
            line.fails = False
            notifier.ready("b")
            await until(line, 4)
            line.fails = True
            notifier.ready("c")
            await notifier.close()
        assert line.told == [["a"], ["a"], ["a"], ["b"], ["c"]]
        assert [(each.levelname, each.message) for each in caplog.records] == [
            ("WARNING", "wake-ups cannot be sent: workers poll")
        ] * 2
        assert {vars(each)["error"] for each in caplog.records} == {"OSError"}
        assert "secret" not in caplog.text

    within(work)


def test_one_that_is_off_does_nothing(within: Within) -> None:
    async def work() -> None:
        line = Line()
        notifier = Notifier(line.send, is_on=False)
        notifier.ready("a")
        await asyncio.sleep(0.01)
        await notifier.close()
        assert line.told == []

    within(work)


def test_closing_does_not_wait_for_a_statement_that_hangs(within: Within) -> None:
    async def work() -> None:
        line = Line(seconds=60)
        notifier = Notifier(line.send, is_on=True)
        notifier.ready("a")
        await until(line, 1)
        notifier.ready("b")
        async with asyncio.timeout(10):
            await notifier.close()
        assert line.told == [["a"]]
        assert line.ended == []

    within(work)


def test_sixteen_tenants_are_named_and_more_are_not() -> None:
    tenants = [f"t{number:02}" for number in range(17)]
    assert payloads_of(set(tenants[:16])) == tenants[:16]
    assert payloads_of(set(tenants)) == [ANY_TENANT]
    assert channel_of("agentruns") == "agentruns_agentruns"


def test_a_payload_of_ends_names_at_most_128_runs_and_the_server_takes_it() -> None:
    runs = [RunId.generate().text for _ in range(257)]
    payloads = ends_payloads_of(runs)
    assert [len(runs_of(payload)) for payload in payloads] == [128, 128, 1]
    assert [each for payload in payloads for each in runs_of(payload)] == sorted(runs)
    assert max(map(len, payloads)) < 8_000
    assert ends_payloads_of([]) == []


def test_the_channel_of_ends_is_a_name_that_the_server_takes_and_no_workers_channel() -> None:
    longest = "x" * 48
    assert check_schema_name(longest) == longest
    assert len(ends_channel_of(longest)) <= 63
    assert ends_channel_of("agentruns") == "agentruns:end_agentruns"
    with pytest.raises(InvalidOptionError):
        check_schema_name(ends_channel_of("x").removeprefix("agentruns"))
