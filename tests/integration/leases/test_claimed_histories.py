"""A batch claim brings the histories of short runs; a drive folds them as it would fold what it reads itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId
from agentruns.errors import RunQuarantinedError
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.held_lease import HeldLease
from agentruns.store.statements import leases
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
GRAPH = chain(a=lambda _context: {"a": 1}, b=lambda _context: Finish({}))


async def claimed(world: DriveWorld, limit: int = 16) -> tuple[HeldLease, ...]:
    ids = [AttemptId.generate() for _ in range(limit)]
    digests = world.executables.graph_digests
    return await world.store.claim_ready(TENANT, limit, attempt_ids=ids, graph_digests=digests)


def sent(world: DriveWorld) -> list[str]:
    """Collect the statements that the store sends from now on; that others are told of it is none of a call's."""
    statements: list[str] = []

    def before(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "pg_notify" not in statement:
            statements.append(statement)

    event.listen(world.store._engine.sync_engine, "before_cursor_execute", before)
    return statements


def test_N4_a_claimed_run_is_driven_without_reading_it_again(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        for _ in range(3):
            await world.submitted()
        statements = sent(world)
        held = await claimed(world)
        assert [each.history is not None for each in held] == [True] * 3
        for each in held:
            assert (await world.loop.run(each, world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED
        # The claim, and for each run its first start, a fused commit, and the last completion with its end.
        assert len(statements) == 1 + 3 * 3

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.parametrize("bound", ["SHORT_EVENTS", "SHORT_BYTES"])
def test_what_does_not_fit_is_read_by_its_own_drive(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    # A fresh run is one event of more than 500 bytes and fewer than 1,000; the second one is beyond the bound.
    monkeypatch.setattr(leases, bound, 1 if bound == "SHORT_EVENTS" else 1_000)
    leases.claim_ready.cache_clear()

    async def work(world: DriveWorld) -> None:
        for _ in range(3):
            await world.submitted()
        held = await claimed(world)
        assert [each.history is not None for each in held] == [True, False, False]
        for each in held:
            assert (await world.loop.run(each, world.shutdown)).outcome is AgentLoopOutcome.SUCCEEDED

    try:
        in_world(work, GRAPH, lease=LONG)
    finally:
        leases.claim_ready.cache_clear()


def test_what_a_claim_brings_is_believed_no_more_than_what_is_read(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.rows("UPDATE agentruns.run_checkpoints SET state = state || ' '::bytea")
        (held,) = await claimed(world)
        assert held.history is not None
        with pytest.raises(RunQuarantinedError):
            await world.loop.run(held, world.shutdown)
        assert await world.attempts() == []
        assert (await world.rows("SELECT quarantined_at FROM agentruns.runs"))[0].quarantined_at is not None
        assert held.fence.run_id == run_id

    in_world(work, GRAPH, lease=LONG)
