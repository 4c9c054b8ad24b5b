"""When code of a graph is called, and what of the drive it can meet: no commit under way, no other exclusive node."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field

from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.graph.reducers import GraphReducerReference, MergeReducer
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ledger.classify import classify
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.retry_advice import SafeAfter
from agentruns.errors import LeaseLostError, NodeFailedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.committer import RunCommitter
from agentruns.runtime.driver import drive
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.testing import samples
from agentruns.testing.drives import DriveWorld, builder, chain, fan
from agentruns.testing.refolding import refolded
from agentruns.testing.sent_statements import sent_statements

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
ISOLATED, EXCLUSIVE = GraphNodeScheduling.JOURNAL_ISOLATED, GraphNodeScheduling.EXCLUSIVE
ANY: dict[str, Any] = {"type": "object"}


# --- commits ------------------------------------------------------------------------------------------------------


@define
class Commits:
    """Know how many sets of commits are being built and sent, answers included.

    Attributes:
        met: how many code of a graph met, by its name.
    """

    under_way: int = 0
    sent: int = 0
    met: dict[str, int] = field(factory=dict)

    def meet(self, name: str) -> None:
        """Note what is under way while code of a graph is called."""
        self.met[name] = self.under_way

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Count from now on."""
        send = RunCommitter._send

        def counted(committer: RunCommitter, *arguments: Any, **named: Any) -> Any:
            self.under_way += 1
            self.sent += 1
            try:
                return send(committer, *arguments, **named)
            finally:
                self.under_way -= 1

        monkeypatch.setattr(RunCommitter, "_send", counted)


@define
class Noting:
    """Reduce as the merging reducer does, and note what is under way meanwhile."""

    commits: Commits
    reference: GraphReducerReference = field(default=MergeReducer().reference)

    def reduce(self, state: Any, updates: Sequence[Any]) -> Any:
        self.commits.meet("reducer")
        return MergeReducer().reduce(state, updates)


def test_DRV_01_no_code_of_a_graph_is_called_while_a_commit_of_its_drive_is_under_way(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = Commits()
    transactions: list[Any] = []
    graph = GraphBuilder(
        "sample-graph", "1.0.0", input=ANY, state=ANY, output=ANY, reducer=Noting(commits), owner=samples.principal()
    )

    @graph.node(entry=True, then="b")
    async def a(_context: Any) -> dict[str, int]:
        commits.meet("on the loop")
        return {"a": 1}

    @graph.node(then="c")
    def b(_context: Any) -> dict[str, int]:
        commits.meet("in a thread")
        return {"b": 1}

    @graph.node(terminal=True)
    async def c(context: Any) -> Finish:
        # A connection that a drive had left in a transaction would be seen by everybody.
        transactions[:] = await worlds[0].rows(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'agentruns'"
            " AND state LIKE 'idle in transaction%'"
        )
        return Finish(context.state)

    worlds: list[DriveWorld] = []

    async def work(world: DriveWorld) -> None:
        worlds.append(world)
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        assert commits.met == dict.fromkeys(("on the loop", "in a thread", "reducer"), 0)
        assert transactions == []
        assert commits.sent >= 4

    # A committer takes what it sends with when it is made.
    commits.watch(monkeypatch)
    in_world(work, graph.build(), lease=LONG)


# --- nodes beside one another ----------------------------------------------------------------------------------------


@define
class Together:
    """Note which nodes execute at the same time.

    Attributes:
        seen: each set of nodes that was executing when one of them began.
    """

    running: set[str] = field(factory=set)
    seen: list[frozenset[str]] = field(factory=list)

    def node(self, name: str) -> Callable[[Any], Any]:
        async def run(_context: Any) -> dict[str, int]:
            self.running.add(name)
            self.seen.append(frozenset(self.running))
            for _ in range(5):
                await asyncio.sleep(0)
            self.running.remove(name)
            return {name: 1}

        return run


def test_DRV_03_an_exclusive_node_runs_alone_and_isolated_ones_up_to_the_width(in_world: InWorld) -> None:
    together, graph = Together(), builder()
    kinds = {"a": ISOLATED, "b": EXCLUSIVE, "c": ISOLATED, "d": ISOLATED, "e": ISOLATED, "f": EXCLUSIVE, "g": EXCLUSIVE}
    for name, kind in kinds.items():
        graph.node(name=name, entry=True, then="z", scheduling=kind)(together.node(name))
    graph.node(name="z", terminal=True)(lambda context: Finish(context.state))

    async def work(world: DriveWorld) -> None:
        result = await world.driven(await world.submitted())
        assert result.outcome is AgentLoopOutcome.SUCCEEDED
        # Nothing is skipped over: what may run side by side are neighbours, two of them at most.
        expected = ("a", "b", "c", "cd", "e", "f", "g")
        assert together.seen == [frozenset(names) for names in expected]
        assert result.report.maximum_nodes_in_batch == 2

    in_world(work, graph.build(), lease=LONG, maximum_parallel_nodes=2)


# --- contexts and tasks that outlive their attempt -------------------------------------------------------------------


def test_DRV_13_a_context_reads_nothing_once_its_node_has_ended(in_world: InWorld) -> None:
    contexts: list[Any] = []

    async def a(context: Any) -> None:
        assert await context.resolutions() == ()
        contexts.append(context)

    async def work(world: DriveWorld) -> None:
        assert (await world.driven(await world.submitted())).outcome is AgentLoopOutcome.SUCCEEDED
        (closed,) = contexts
        with sent_statements(world.store) as texts:
            with pytest.raises(LeaseLostError) as lost:
                await closed.resolutions()
            assert lost.value.reason == "context_closed"
            with pytest.raises(LeaseLostError) as lost:
                await asyncio.to_thread(closed.wait_for_resolutions)
            assert lost.value.reason == "context_closed"
        assert texts == []

    in_world(work, chain(a=a, b=lambda _context: Finish({})), lease=LONG)


def test_DRV_13_DRV_15_a_node_that_was_given_up_lives_on_and_reads_and_writes_nothing(in_world: InWorld) -> None:
    waiting: list[weakref.ref[asyncio.Future[None]]] = []
    ended: list[str] = []

    async def stubborn(context: Any) -> Finish:
        while True:
            try:
                # Nobody but this task knows what it waits for.
                await _of_its_own(waiting)
            except asyncio.CancelledError:
                continue
            try:
                await context.resolutions()
            except LeaseLostError as lost:
                ended.append(lost.reason)
            return Finish({"late": True})

    async def work(world: DriveWorld) -> None:
        driving = asyncio.create_task(world.driven(await world.submitted()))
        await world.until("graph-node-attempt-started")
        async with asyncio.timeout(10):
            while not waiting:
                await asyncio.sleep(0.01)
        world.shutdown.stop()
        result = await driving
        assert (result.outcome, result.report.abandoned_nodes) == (AgentLoopOutcome.CANCELLED, ["a"])
        del driving, result
        before = await world.everything()
        await _collect()
        awaited = waiting[-1]()
        assert awaited is not None
        with sent_statements(world.store) as texts:
            awaited.set_result(None)
            async with asyncio.timeout(10):
                while not ended:
                    await asyncio.sleep(0)
        assert (ended, texts) == (["context_closed"], [])
        assert await world.everything() == before

    in_world(work, chain(a=stubborn), lease=LONG, task_abort_wait=timedelta(milliseconds=50))


async def _of_its_own(waiting: list[weakref.ref[asyncio.Future[None]]]) -> None:
    future = asyncio.get_running_loop().create_future()
    waiting.append(weakref.ref(future))
    await future


async def _collect() -> None:
    gc.collect()
    await asyncio.sleep(0)


def test_DRV_15_nodes_that_nobody_else_refers_to_survive_every_collection(in_world: InWorld) -> None:
    waiting: list[weakref.ref[asyncio.Future[None]]] = []

    async def lonely(_context: Any) -> dict[str, Any]:
        await _of_its_own(waiting)
        return {}

    async def work(world: DriveWorld) -> None:
        driving = asyncio.create_task(world.driven(await world.submitted()))
        async with asyncio.timeout(10):
            while len(waiting) < 2:
                await asyncio.sleep(0.01)
        await _collect()
        for each in waiting:
            awaited = each()
            assert awaited is not None
            awaited.set_result(None)
            del awaited
            await _collect()
        assert (await driving).outcome is AgentLoopOutcome.SUCCEEDED

    siblings = {"a": lonely, "b": lonely}
    in_world(work, fan(first=siblings, last=lambda _context: Finish({})), lease=LONG, maximum_parallel_nodes=2)


# --- the state that a drive carries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fuses", [True, False])
def test_DRV_18_at_every_turn_the_carried_state_is_the_fold_of_what_is_stored(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch, *, fuses: bool
) -> None:
    carried: list[RunState] = []

    def noted(state: RunState, **named: Any) -> Any:
        carried.append(state)
        return classify(state, **named)

    monkeypatch.setattr(drive, "classify", noted)

    def once(context: Any) -> dict[str, Any]:
        if context.attempt == 1:
            raise NodeFailedError(failure=samples.failure(retry_advice=SafeAfter(delay=DurationMillis(0))))
        return {"a": context.attempt}

    async def work(world: DriveWorld) -> None:
        run_id, turns = await world.submitted(), 0
        while (await world.driven(run_id)).outcome is not AgentLoopOutcome.SUCCEEDED:
            turns += 1
        assert turns >= 1
        by_head = {state.head: state for state in await refolded(world, run_id)}
        # The end of the run comes with its last completion, if they may share a commit: then no turn is between them.
        assert len({state.head for state in carried}) >= (3 if fuses else 4)
        assert [state for state in carried if state != by_head[state.head]] == []

    siblings = {"a": once, "b": lambda _context: {"b": 1}, "c": lambda _context: {"c": 1}}
    graph = fan(first=siblings, last=lambda context: Finish(context.state))
    options = {"maximum_parallel_nodes": 2, "maximum_durable_events": 6, "fuse_supersteps": fuses}
    in_world(work, graph, lease=LONG, **options)
