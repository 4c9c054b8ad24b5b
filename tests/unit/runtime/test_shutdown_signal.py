"""Two steps towards the end of a process, from any thread and from signal handlers."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

import pytest

from agentruns.runtime.shutdown import ShutdownSignal


def test_nothing_is_asked_for_at_first_and_each_step_stays() -> None:
    shutdown = ShutdownSignal()
    assert (shutdown.is_draining, shutdown.is_stopping) == (False, False)
    shutdown.drain()
    shutdown.drain()
    assert (shutdown.is_draining, shutdown.is_stopping) == (True, False)
    shutdown.stop()
    assert (shutdown.is_draining, shutdown.is_stopping) == (True, True)
    shutdown.drain()
    assert shutdown.is_stopping


def test_stopping_drains_too() -> None:
    shutdown = ShutdownSignal()
    shutdown.stop()
    assert (shutdown.is_draining, shutdown.is_stopping) == (True, True)


def test_who_waits_for_what_was_asked_before_does_not_wait() -> None:
    async def work() -> None:
        shutdown = ShutdownSignal()
        shutdown.stop()
        await asyncio.wait_for(shutdown.wait_draining(), 30)
        await asyncio.wait_for(shutdown.wait_stopping(), 30)

    asyncio.run(work())


def test_draining_wakes_who_waits_for_it_and_nobody_else() -> None:
    async def work() -> None:
        shutdown = ShutdownSignal()
        draining, stopping = (asyncio.create_task(each()) for each in (shutdown.wait_draining, shutdown.wait_stopping))
        await asyncio.sleep(0)
        shutdown.drain()
        await asyncio.wait_for(draining, 30)
        assert not stopping.done()
        shutdown.stop()
        await asyncio.wait_for(stopping, 30)

    asyncio.run(work())


def _from_a_thread(call: Callable[[], None]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def _from_a_signal_handler(call: Callable[[], None]) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: call())
    signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("ask", [_from_a_thread, _from_a_signal_handler])
def test_every_loop_of_the_process_is_woken(ask: Callable[[Callable[[], None]], None]) -> None:
    shutdown, began, ended = ShutdownSignal(), threading.Barrier(2), []

    async def elsewhere() -> None:
        waiting = asyncio.create_task(shutdown.wait_draining())
        await asyncio.sleep(0)
        began.wait()
        await asyncio.wait_for(waiting, 30)
        ended.append("elsewhere")

    async def here() -> None:
        waiting = asyncio.create_task(shutdown.wait_draining())
        await asyncio.sleep(0)
        began.wait()
        ask(shutdown.drain)
        await asyncio.wait_for(waiting, 30)
        ended.append("here")

    other = threading.Thread(target=asyncio.run, args=(elsewhere(),))
    other.start()
    asyncio.run(here())
    other.join()
    assert sorted(ended) == ["elsewhere", "here"]


def test_a_signal_between_the_look_and_the_wait_is_not_missed() -> None:
    """A handler may run between any two steps of whoever begins to wait; here it runs at each of them."""

    class Interrupted(list[object]):
        """The list of waiters, in which a signal arrives right after somebody was added."""

        def append(self, waiter: object, /) -> None:
            super().append(waiter)
            shutdown.drain()

    shutdown = ShutdownSignal()
    shutdown._waiters = Interrupted()  # type: ignore[assignment]  # a list all the same
    asyncio.run(asyncio.wait_for(shutdown.wait_draining(), 30))


def test_who_gave_up_waiting_is_forgotten() -> None:
    async def work() -> None:
        shutdown = ShutdownSignal()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(shutdown.wait_draining(), 0.01)
        assert shutdown._waiters == []
        shutdown.drain()

    asyncio.run(work())


def test_a_follower_is_asked_what_its_leader_is_asked_and_asks_nobody_else() -> None:
    async def work() -> None:
        leader = ShutdownSignal()
        follower, other = ShutdownSignal(follows=leader), ShutdownSignal(follows=leader)
        second = ShutdownSignal(follows=follower)
        waits = (second.wait_draining(), second.wait_stopping())
        draining, stopping = (asyncio.create_task(each) for each in waits)
        await asyncio.sleep(0)
        leader.drain()
        await asyncio.wait_for(draining, 30)
        assert [each.is_draining for each in (leader, follower, other, second)] == [True] * 4
        assert not stopping.done()
        follower.stop()
        await asyncio.wait_for(stopping, 30)
        assert [each.is_stopping for each in (leader, follower, other, second)] == [False, True, False, True]
        assert [each._waiters for each in (leader, follower, second)] == [[], [], []]

    asyncio.run(work())
