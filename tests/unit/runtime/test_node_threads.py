"""Threads for nodes that are plain functions: a bounded number, and one that hangs is given up."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time

import pytest

from agentruns.errors import DeploymentError
from agentruns.runtime.driver.threads import NodeThreads

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("COLOUR", default="none")


def test_a_call_runs_in_a_daemon_thread_with_a_copy_of_the_context() -> None:
    def call() -> tuple[bool, bool, str]:
        seen = COLOUR.get()
        COLOUR.set("changed")
        thread = threading.current_thread()
        return thread.daemon, thread is threading.main_thread(), seen

    async def work() -> None:
        COLOUR.set("green")
        assert await (await NodeThreads(1).start(call)) == (True, False, "green")
        assert COLOUR.get() == "green"

    asyncio.run(work())


@pytest.mark.parametrize(("raised", "met"), [(ValueError, ValueError), (StopIteration, RuntimeError)])
def test_what_a_call_raises_is_raised_where_it_is_awaited(raised: type[Exception], met: type[Exception]) -> None:
    def call() -> None:
        raise raised

    async def work() -> None:
        with pytest.raises(met):
            await (await NodeThreads(1).start(call))

    asyncio.run(work())


def test_more_calls_than_threads_wait_for_one_another() -> None:
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(2)

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        # Each waits for another one that runs beside it.
        together.wait(30)
        with lock:
            running -= 1

    async def work() -> None:
        threads = NodeThreads(2)

        async def one() -> None:
            threads.check_available()
            await (await threads.start(call))

        await asyncio.gather(*(one() for _ in range(8)))
        assert most == 2

    asyncio.run(work())


def test_threads_whose_nodes_were_given_up_are_not_available_until_they_end() -> None:
    hanging = threading.Event()

    async def work() -> None:
        threads = NodeThreads(1)
        ending = await threads.start(hanging.wait)
        threads.check_available()
        threads.abandon(ending)
        with pytest.raises(DeploymentError) as error:
            threads.check_available()
        assert error.value.reason == "node_threads_exhausted"
        hanging.set()
        await ending
        await asyncio.sleep(0)
        threads.check_available()
        assert await (await threads.start(lambda: "again")) == "again"

    asyncio.run(work())


def test_threads_are_lent_in_the_order_of_asking_and_who_gave_up_keeps_none() -> None:
    order: list[str] = []

    async def work() -> None:
        threads = NodeThreads(1)

        async def one(name: str) -> None:
            await (await threads.start(lambda: order.append(name)))

        await threads._hold()
        asking = [asyncio.create_task(one(name)) for name in "abcd"]
        await asyncio.sleep(0)
        asking[0].cancel()
        threads._let_go()
        # This one gives up in the very moment in which the thread has become its own.
        asking[1].cancel()
        _, unserved = await asyncio.wait(asking, timeout=30)
        assert unserved == set()
        assert [each.cancelled() for each in asking] == [True, True, False, False]
        await one("e")
        assert order == ["c", "d", "e"]

    asyncio.run(work())


def test_who_waits_is_refused_when_the_last_thread_is_given_up() -> None:
    hanging = threading.Event()

    async def work() -> None:
        threads = NodeThreads(1)
        ending = await threads.start(hanging.wait)
        asking = asyncio.create_task(threads.start(hanging.wait))
        await asyncio.sleep(0)
        threads.abandon(ending)
        with pytest.raises(DeploymentError) as error:
            await asyncio.wait_for(asking, 30)
        assert error.value.reason == "node_threads_exhausted"
        hanging.set()

    asyncio.run(work())


def test_a_call_that_outlives_its_loop_is_nobody_s_trouble() -> None:
    hanging, ended = threading.Event(), threading.Event()

    def call() -> None:
        hanging.wait()
        ended.set()

    async def work() -> None:
        await NodeThreads(1).start(call)

    asyncio.run(work())
    hanging.set()
    assert ended.wait(30)
    time.sleep(0.02)
