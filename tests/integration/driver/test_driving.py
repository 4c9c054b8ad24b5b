"""One drive from admission to verified result, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.digests import Digest
from agentruns.domain.failure_codes import NODE_INVALID_RESULT, NODE_TASK_PANICKED, NODE_TIMEOUT
from agentruns.domain.graph.activation import NodeActivation
from agentruns.domain.graph.returns import Finish
from agentruns.domain.numbers import Superstep
from agentruns.domain.outcome import FailedOutcome, SucceededOutcome
from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import TENANT, DriveWorld, chain, fan, open_world, sleep_for_ever

Run = Callable[[Coroutine[Any, Any, Any]], Any]
InWorld = Callable[..., None]

ADMITTED = "agent-admitted"
STARTED, SUCCEEDED, FAILED = (f"graph-node-attempt-{word}" for word in ("started", "succeeded", "failed"))
CONTINUED, ENDED, RUN_FAILED = "graph-barrier-continued", "graph-barrier-succeeded", "graph-run-failed"
CHAIN_OF_THREE = [
    ADMITTED,
    STARTED,
    *(SUCCEEDED, CONTINUED, STARTED) * 2,
    SUCCEEDED,
    ENDED,
]


def three() -> GraphBundle:
    return chain(
        a=lambda _context: {"a": 1},
        b=lambda context: {"b": context.state["a"] + 1},
        c=lambda context: Finish({"sum": context.state["a"] + context.state["b"]}),
    )


def test_a_chain_of_three_nodes_ends_with_its_result(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        result = await world.driven(run_id)
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        assert await world.kinds() == CHAIN_OF_THREE
        snapshot = await world.loaded(run_id)
        assert isinstance(snapshot.outcome, SucceededOutcome)
        assert snapshot.outcome.result.output.value == {"sum": 3}
        assert (snapshot.status, snapshot.revision.value) == (RunStatus.SUCCEEDED, 2)
        assert await world.attempts() == [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]

    in_world(work, three())


@pytest.mark.parametrize(("is_fused", "expected", "of_the_drive"), [(True, [1, 1, 3, 3, 2], 4), (False, [1] * 10, 8)])
def test_DRV_06_a_chain_costs_a_commit_more_than_its_nodes(
    in_world: InWorld, *, is_fused: bool, expected: list[int], of_the_drive: int
) -> None:
    async def work(world: DriveWorld) -> None:
        result = await world.driven(await world.submitted())
        # The admission first: so n + 1 commits after the claim when they are fused.
        assert await world.commits() == expected
        assert await world.kinds() == CHAIN_OF_THREE
        assert result.report.commits == of_the_drive

    in_world(work, three(), fuse_supersteps=is_fused)


def test_DRV_05_fused_and_separate_commits_leave_the_same_record(database_url: str, owner_url: str, run: Run) -> None:
    async def record(*, is_fused: bool) -> list[tuple[str, str]]:
        async with open_world(owner_url, three(), store_url=database_url, fuse_supersteps=is_fused) as world:
            run_id = await world.submitted()
            await world.driven(run_id)
            rows = await world.rows(
                "SELECT kind, convert_from(state, 'UTF8') AS state FROM agentruns.run_events"
                " LEFT JOIN agentruns.run_checkpoints USING (tenant_id, run_id, sequence)"
                " WHERE run_id = cast(:run_id AS uuid) ORDER BY sequence",
                run_id=run_id.text,
            )
            return [(row.kind, row.state) for row in rows]

    assert run(record(is_fused=True)) == run(record(is_fused=False))


def test_DRV_16_the_report_counts_what_the_journal_shows(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        report = (await world.driven(await world.submitted())).report
        assert (report.node_attempts_started, report.node_attempts_completed) == (3, 3)
        assert (report.barriers_committed, report.durable_events) == (3, 9)
        assert (report.commits, report.fused_commits) == (4, 3)
        assert (report.replay.events_verified, report.replay.windows) == (1, 1)

    in_world(work, three())


def test_DRV_02_siblings_that_finish_in_reverse_are_committed_in_the_order_of_their_ids(in_world: InWorld) -> None:
    finished: list[str] = []

    has_ended = {name: asyncio.Event() for name in "abc"}

    def sibling(name: str, after: str) -> Callable[[Any], Coroutine[Any, Any, dict[str, int]]]:
        async def node(_context: Any) -> dict[str, int]:
            if after:
                await has_ended[after].wait()
            finished.append(name)
            has_ended[name].set()
            return {name: 1}

        return node

    siblings = {name: sibling(name, after) for name, after in (("a", "b"), ("b", "c"), ("c", ""))}
    bundle = fan(first=siblings, last=lambda context: Finish(context.state))

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.driven(run_id)
        assert finished == ["c", "b", "a"]
        assert await world.kinds() == [
            ADMITTED,
            *(STARTED,) * 3,
            *(SUCCEEDED,) * 3,
            CONTINUED,
            STARTED,
            SUCCEEDED,
            ENDED,
        ]
        rows = await world.rows("SELECT node_id FROM agentruns.node_results ORDER BY sequence")
        assert [row.node_id for row in rows] == ["a", "b", "c", "z_last"]
        assert await world.commits() == [1, 3, 5, 2]

    in_world(work, bundle, maximum_parallel_nodes=3)


async def end_at_once(_context: Any) -> dict[str, int]:
    return {"a": 1}


@pytest.mark.parametrize("first", [end_at_once, lambda _context: {"a": 1}], ids=["in one turn of the loop", "later"])
def test_DRV_17_a_finished_sibling_is_durable_while_a_later_one_still_runs(in_world: InWorld, first: Any) -> None:
    release = asyncio.Event()

    async def slow(_context: Any) -> None:
        await release.wait()

    bundle = fan(first={"a": first, "b": slow}, last=lambda _context: Finish({}))

    async def work(world: DriveWorld) -> None:
        driving = asyncio.create_task(world.driven(await world.submitted()))
        await world.until(SUCCEEDED)
        assert await world.kinds() == [ADMITTED, STARTED, STARTED, SUCCEEDED]
        release.set()
        assert (await driving).outcome is AgentLoopOutcome.SUCCEEDED

    in_world(work, bundle, maximum_parallel_nodes=2)


def test_every_node_of_every_step_has_an_effect_key_of_its_own(in_world: InWorld) -> None:
    keys: dict[str, str] = {}

    def keep(context: Any) -> dict[str, Any]:
        keys[str(context.node_id)] = context.effect_key
        assert context.effect_key is keys[str(context.node_id)]
        return {}

    def keep_last(context: Any) -> Finish:
        keep(context)
        return Finish({})

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        rows = await world.rows("SELECT superstep, digest FROM agentruns.run_checkpoints ORDER BY superstep")
        expected = {
            node_id: NodeActivation(
                tenant_id=TENANT,
                run_id=run_id,
                superstep=Superstep(row.superstep),
                checkpoint_digest=Digest(row.digest),
                node_id=NodeId(node_id),
            ).effect_key.hex
            for node_id, row in zip(("a", "b", "z_last"), (rows[0], rows[0], rows[1]), strict=True)
        }
        assert (keys, len(set(keys.values()))) == (expected, 3)

    in_world(work, fan(first={"a": keep, "b": keep}, last=keep_last), maximum_parallel_nodes=2)


class Odd(Exception):  # noqa: N818
    """Whatever user code may raise."""


async def raise_cancelled(_context: Any) -> None:
    raise asyncio.CancelledError


def raise_odd(_context: Any) -> None:
    raise Odd


@pytest.mark.parametrize(
    ("node", "code", "details", "seconds"),
    [
        (raise_odd, NODE_TASK_PANICKED, "exception_type", 60.0),
        (raise_cancelled, NODE_TASK_PANICKED, "exception_type", 60.0),
        (lambda _context: "a bare string", NODE_INVALID_RESULT, "reason", 60.0),
        (lambda _context: ("a", "tuple"), NODE_INVALID_RESULT, "reason", 60.0),
        (sleep_for_ever, NODE_TIMEOUT, None, 0.3),
    ],
)
def test_DRV_14_whatever_a_node_does_ends_in_a_failed_attempt_and_a_failed_run(
    in_world: InWorld, node: Any, code: Any, details: str | None, seconds: float
) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        result = await world.driven(run_id)
        assert result.outcome is AgentLoopOutcome.FAILED
        assert await world.kinds() == [ADMITTED, STARTED, FAILED, RUN_FAILED]
        outcome = (await world.loaded(run_id)).outcome
        assert isinstance(outcome, FailedOutcome)
        assert outcome.failure.code == code
        stated = outcome.failure.details
        assert (details is None) is (stated is None)
        assert stated is None or details is None or f'"{details}"'.encode() in stated.value.data

    in_world(work, chain(a=node), node_execution_timeout=timedelta(seconds=seconds))


def test_a_node_can_assign_nothing_to_its_context(in_world: InWorld) -> None:
    members = (
        *("tenant_id", "run_id", "node_id", "superstep", "checkpoint_digest", "attempt_id", "attempt"),
        *("state", "cancelled", "time_left", "effect_key", "of_its_own"),
    )

    async def a(context: Any) -> Finish:
        key = context.effect_key
        for name in members:
            with pytest.raises(AttributeError):
                setattr(context, name, "other")
        assert (context.node_id.text, context.effect_key) == ("a", key)
        return Finish({})

    async def work(world: DriveWorld) -> None:
        assert (await world.driven(await world.submitted())).outcome is AgentLoopOutcome.SUCCEEDED

    in_world(work, chain(a=a), lease=timedelta(minutes=1))
