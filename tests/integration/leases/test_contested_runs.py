"""Workers of two processes take runs from one another while they drive them: what is left are legal attempts alone."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any

from attrs import define, field

from agentruns.domain.failure import SafeAfter
from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.numbers import DurationMillis
from agentruns.errors import AgentRunsError, NodeFailedError
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, fan, open_world
from agentruns.testing.hand_driven import HandDriven

Run = Callable[[Coroutine[Any, Any, Any]], Any]

LONG = timedelta(minutes=1)
RUNS = 4
WORKERS = 4
#: So often a run is taken from its owner, at most.
TAKEOVERS = 8
OPTIONS: dict[str, Any] = {"lease": LONG, "maximum_parallel_nodes": 3}


@define
class Contest:
    """Note every call of a node, and let workers take runs from one another.

    Attributes:
        calls: run, step, node and attempt id of each call.
        taken: how often a run was taken.
    """

    chance: random.Random = field(factory=lambda: random.Random(7))
    calls: Counter[tuple[str, int, str, str]] = field(factory=Counter)
    taken: Counter[RunId] = field(factory=Counter)

    def graph(self) -> GraphBundle:
        """Build three siblings, of which one fails at first, and the last node."""
        siblings = {name: self._node(name) for name in "abc"}
        return fan(first=siblings, last=self._node("z_last"))

    def _node(self, name: str) -> Callable[[Any], Any]:
        async def node(context: Any) -> Any:
            attempt_id = str(context.attempt_id)
            self.calls[context.run_id.text, context.superstep.value, name, attempt_id] += 1
            await asyncio.sleep(self.chance.choice([0, 0, 0.02]))
            if name == "a" and context.attempt == 1:
                raise NodeFailedError(failure=samples.failure(retry_advice=SafeAfter(delay=DurationMillis(0))))
            return Finish({}) if name == "z_last" else {name: context.attempt}

        return node

    async def work(self, world: DriveWorld, run_ids: list[RunId]) -> None:
        """Take runs and drive them until all have ended."""
        while not await self._are_over(world):
            run_id = self.chance.choice(run_ids)
            with suppress(AgentRunsError):
                if self.taken[run_id] < TAKEOVERS and self.chance.random() < 0.6:
                    self.taken[run_id] += 1
                    held = await world.store.supersede(TENANT, run_id, AttemptId.generate())
                else:
                    held = await world.claimed(run_id)
                await world.loop.run(held, ShutdownSignal())
            await asyncio.sleep(0)

    @staticmethod
    async def _are_over(world: DriveWorld) -> bool:
        open_runs = await world.rows("SELECT 1 FROM agentruns.runs WHERE status <> 'succeeded' LIMIT 1")
        return open_runs == []


ATTEMPTS = """
    SELECT a.run_id::text AS run_id, a.superstep, a.node_id, a.attempt, a.attempt_id::text AS attempt_id,
        started.epoch, started.recorded_at, r.status, r.retry_not_before, ended.epoch AS ended_epoch
    FROM agentruns.node_attempts AS a
    JOIN agentruns.run_events AS started ON started.run_id = a.run_id AND started.sequence = a.sequence
    LEFT JOIN agentruns.node_results AS r ON r.run_id = a.run_id AND r.superstep = a.superstep
        AND r.node_id = a.node_id AND r.attempt = a.attempt
    LEFT JOIN agentruns.run_events AS ended ON ended.run_id = a.run_id AND ended.sequence = r.sequence
    ORDER BY a.run_id, a.superstep, a.node_id, a.attempt"""


def check_attempts(rows: list[Any], calls: Counter[tuple[str, int, str, str]]) -> None:
    """Hold attempts, as they are stored, against the laws of their history."""
    started = Counter((row.run_id, row.superstep, row.node_id, row.attempt_id) for row in rows)
    assert set(calls.values()) == {1}
    assert calls <= started
    histories: dict[tuple[str, int, str], list[Any]] = defaultdict(list)
    for row in rows:
        histories[row.run_id, row.superstep, row.node_id].append(row)
    for history in histories.values():
        assert [row.attempt for row in history] == list(range(1, len(history) + 1))
        assert len(history) <= 64
        assert Counter(row.status for row in history)["succeeded"] <= 1
        assert all(row.ended_epoch in (None, row.epoch) for row in history)
        for before, after in pairwise(history):
            if before.status is None:
                assert before.epoch < after.epoch
            else:
                assert before.status == "failed"
                assert before.retry_not_before <= after.recorded_at


def test_LEA_15_LEA_16_LEA_17_LEA_18_LEA_19_LEA_20_contested_runs_have_legal_attempts(
    database_url: str, owner_url: str, run: Run
) -> None:
    contest = Contest()

    async def work() -> None:
        bundle = contest.graph()
        async with (
            open_world(owner_url, bundle, store_url=database_url, **OPTIONS) as here,
            open_world(owner_url, bundle, store_url=database_url, **OPTIONS) as there,
        ):
            run_ids = [await here.submitted() for _ in range(RUNS)]
            # One is under way already when its owner falls silent.
            silent = await HandDriven.of(here, (await here.claimed(run_ids[0])).fence)
            await silent.commit(silent.start())
            async with asyncio.timeout(60):
                workers = [contest.work(world, run_ids) for world in (here, there) for _ in range(WORKERS // 2)]
                await asyncio.gather(*workers)
            rows = await here.rows(ATTEMPTS)
            check_attempts(rows, contest.calls)
            events = await here.rows(
                "SELECT run_id, array_agg(sequence ORDER BY sequence) AS sequences, array_agg(epoch ORDER BY sequence)"
                " FILTER (WHERE epoch > 0) AS epochs FROM agentruns.run_events GROUP BY run_id"
            )
            for row in events:
                assert row.sequences == list(range(1, len(row.sequences) + 1))
                assert row.epochs == sorted(row.epochs)
            assert any(row.status is None for row in rows)

    run(work())
