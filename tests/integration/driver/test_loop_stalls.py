"""A node that blocks the event loop is named, with the time for which it did."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.errors import LeaseLostError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing.drives import DriveWorld, chain, fan

InWorld = Callable[..., None]

#: A third of it is a stall, which a machine that stands still for a moment makes none of.
TTL = timedelta(seconds=8)
SECONDS = TTL.total_seconds()


def stalls(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Name the nodes of each warning."""
    return [record.__dict__["nodes"] for record in caplog.records if "event loop is blocked" in record.getMessage()]


def blocking(share: float) -> Callable[[Any], Any]:
    async def node(_context: Any) -> Finish:
        time.sleep(share * SECONDS)  # noqa: ASYNC251  # this is what must be noticed
        return Finish({})

    return node


def test_B5_half_a_lease_is_reported_and_does_no_harm(in_world: InWorld, caplog: pytest.LogCaptureFixture) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        result = await world.driven(run_id)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        (stall,) = result.report.loop_stalls
        assert stall.nodes == ("b",)
        assert 0.5 * SECONDS <= stall.seconds < SECONDS
        assert await world.attempts() == [("a", 1, 1), ("b", 1, 1)]

    with caplog.at_level(logging.WARNING, logger="agentruns.runtime.driver"):
        in_world(work, chain(a=lambda _context: {}, b=blocking(0.5)), lease=TTL)
    assert stalls(caplog) == ["b"]


def test_B5_past_the_lease_the_result_is_refused_and_the_node_named(
    in_world: InWorld, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        with pytest.raises(LeaseLostError) as lost:
            await world.driven(run_id)
        assert lost.value.reason == "expired"
        assert await world.kinds() == ["agent-admitted", "graph-node-attempt-started"]

    with caplog.at_level(logging.WARNING, logger="agentruns.runtime.driver"):
        in_world(work, chain(a=blocking(1.1)), lease=TTL)
    assert stalls(caplog) == ["a"]


def test_B5_a_plain_function_holds_no_loop(in_world: InWorld, caplog: pytest.LogCaptureFixture) -> None:
    def patient(_context: Any) -> Finish:
        # On the loop it would be a stall, of which the lease allows a third.
        time.sleep(5)
        return Finish({})

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        result = await world.driven(run_id)
        assert (result.outcome, result.report.loop_stalls) == (AgentLoopOutcome.SUCCEEDED, [])
        assert await world.attempts() == [("a", 1, 1)]

    with caplog.at_level(logging.WARNING, logger="agentruns.runtime.driver"):
        in_world(work, chain(a=patient), lease=timedelta(seconds=12))
    assert stalls(caplog) == []


def watches() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "agentruns-loop-watch"]


def test_the_watch_costs_one_daemon_thread_for_all_drives_and_ends_with_its_driver(in_world: InWorld) -> None:
    new: list[threading.Thread] = []

    async def work(world: DriveWorld) -> None:
        before = watches()
        for _ in range(3):
            await world.driven(await world.submitted())
        new.extend(thread for thread in watches() if thread not in before)
        assert [thread.daemon for thread in new] == [True]

    siblings: dict[str, Any] = {"a": lambda _context: {}, "b": lambda _context: {}}
    in_world(work, fan(first=siblings, last=lambda _context: Finish({})), lease=2 * TTL)
    ends_by = time.monotonic() + 30
    # The loop may hold the watch a moment longer, by a timer that has not run yet.
    while new[0].is_alive() and time.monotonic() < ends_by:
        gc.collect()
        new[0].join(timeout=0.1)
    assert not new[0].is_alive()
