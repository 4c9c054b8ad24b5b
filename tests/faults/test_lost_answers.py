"""The server commits and its answer never arrives: the same ids find out, and a start so lost permits no call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId
from agentruns.domain.outcome import SucceededOutcome
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.faults import WireProxy

Behind = Callable[..., None]

LONG = timedelta(minutes=1)
STARTED, SUCCEEDED, CONTINUED, ENDED, ADMITTED = (
    f"{kind}".encode()
    for kind in (
        "graph-node-attempt-started",
        "graph-node-attempt-succeeded",
        "graph-barrier-continued",
        "graph-barrier-succeeded",
        "agent-admitted",
    )
)


def counting() -> tuple[GraphBundle, Counter[str]]:
    """Three nodes in a row, and how often each attempt of them was called."""
    calls: Counter[str] = Counter()

    def node(name: str) -> Callable[[Any], Any]:
        def execute(context: Any) -> Any:
            calls[f"{name} {context.attempt}"] += 1
            return Finish(context.state) if name == "c" else {name: "done"}

        return execute

    return chain(a=node("a"), b=node("b"), c=node("c")), calls


def test_DRV_07_a_start_whose_answer_was_lost_is_in_flight_until_the_next_fence(behind_a_wire: Behind) -> None:
    graph, calls = counting()

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        run_id = await world.submitted()
        proxy.lose_answer(STARTED)
        first = await world.driven(run_id)
        assert proxy.lost == 1
        # Nobody knows whether the code of that start runs; so it does not, and the run is given back at once.
        assert first.outcome is AgentLoopOutcome.RECOVERY_RELEASED
        assert calls == Counter()
        assert await world.attempts() == [("a", 1, 1)]
        (row,) = await world.rows("SELECT lease_attempt_id, scheduler_not_before FROM agentruns.runs")
        assert tuple(row) == (None, None)
        second = await world.driven(run_id)
        assert second.outcome is AgentLoopOutcome.SUCCEEDED
        assert calls == Counter({"a 2": 1, "b 1": 1, "c 1": 1})
        assert await world.attempts() == [("a", 1, 1), ("a", 2, 2), ("b", 1, 2), ("c", 1, 2)]

    behind_a_wire(work, graph, lease=LONG)


@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("needle", [STARTED, SUCCEEDED, CONTINUED, ENDED])
def test_DRV_07_whatever_commit_loses_its_answer_nothing_is_called_twice(
    behind_a_wire: Behind, needle: bytes, *, is_fused: bool
) -> None:
    graph, calls = counting()

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        run_id = await world.submitted()
        proxy.lose_answer(needle)
        drives = 1
        while (await world.driven(run_id)).outcome is AgentLoopOutcome.RECOVERY_RELEASED:
            drives += 1
        assert proxy.lost == 1
        assert drives == (2 if needle == STARTED or (is_fused and needle in (SUCCEEDED, CONTINUED)) else 1)
        assert set(calls.values()) == {1}
        assert Counter(name.split()[0] for name in calls) == Counter("abc")
        outcome = (await world.loaded(run_id)).outcome
        assert isinstance(outcome, SucceededOutcome)
        assert outcome.result.output.value == {"a": "done", "b": "done"}
        kinds = Counter(await world.kinds())
        assert kinds["graph-node-attempt-started"] == 3 + (drives - 1)
        assert (kinds["graph-node-attempt-succeeded"], kinds["graph-barrier-continued"]) == (3, 2)
        assert kinds["graph-barrier-succeeded"] == 1

    behind_a_wire(work, graph, lease=LONG, fuse_supersteps=is_fused)


def test_H5_an_admission_whose_answer_was_lost_is_there_once(behind_a_wire: Behind) -> None:
    graph, _ = counting()

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        proxy.lose_answer(ADMITTED)
        run_id = await world.submitted()
        assert proxy.lost == 1
        rows = await world.rows("SELECT run_id::text AS run_id FROM agentruns.runs")
        assert [row.run_id for row in rows] == [run_id.text]

    behind_a_wire(work, graph)


def test_H5_a_claim_whose_answer_was_lost_is_found_with_its_lease(behind_a_wire: Behind) -> None:
    graph, _ = counting()

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        run_id, attempt_id = await world.submitted(), AttemptId.generate()
        proxy.lose_answer(attempt_id.text.encode())
        held = await world.store.claim(TENANT, run_id, attempt_id)
        assert proxy.lost == 1
        (row,) = await world.rows("SELECT fencing_epoch, lease_expires_at FROM agentruns.runs")
        assert tuple(row) == (1, held.lease.expires_at.to_datetime())
        assert (held.fence.epoch.value, held.fence.attempt_id) == (1, attempt_id)

    behind_a_wire(work, graph)


def test_H5_a_renewal_and_a_release_whose_answers_were_lost_have_happened_once(behind_a_wire: Behind) -> None:
    graph, _ = counting()

    async def work(world: DriveWorld, proxy: WireProxy) -> None:
        held = await world.claimed(await world.submitted())
        needle = held.fence.attempt_id.text.encode()
        desired = held.lease.expires_at.plus(timedelta(seconds=30))
        proxy.lose_answer(needle)
        assert (await world.store.renew(held.fence, desired=desired)).lease.expires_at == desired
        proxy.lose_answer(needle)
        await world.store.release(held.fence, delay=timedelta(seconds=30))
        assert proxy.lost == 2
        (row,) = await world.rows(
            "SELECT lease_attempt_id, fencing_epoch, scheduler_not_before - scheduler_ready_at AS delay"
            " FROM agentruns.runs"
        )
        assert tuple(row) == (None, 1, timedelta(seconds=30))

    behind_a_wire(work, graph, lease=LONG)
