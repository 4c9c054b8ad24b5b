"""One submission of a set is held up by somebody else's transaction: what that costs the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import StoreUnavailableError
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions

Run = Callable[[Coroutine[Any, Any, Any]], Any]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
ATTEMPTS = 2
#: Sets of 8, 4 and 4, 2 and 2, 1 and 1: those with the held item wait in vain. The last of them was its own first try.
SETS = 1 + 2 + 2 + 2


@pytest.mark.direct("a pooler gives backends, not a store, their timeouts")
@pytest.mark.parametrize("held", [0, 3, 7])
def test_SUB_26_a_held_up_item_costs_the_others_the_halves_that_they_share_with_it(
    kit: Any, run: Run, held: int
) -> None:
    options = StoreOptions(pool_size=1, lane_connections=1, lock_timeout=timedelta(milliseconds=150), attempts=ATTEMPTS)

    async def work() -> None:
        async with AgentRunStore(kit.url, options) as store, kit.engine() as engine, engine.connect() as connection:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            keys = [AgentSubmissionKey.generate() for _ in range(8)]
            transaction = await connection.begin()
            theirs = await runs.submit(keys[held], kit.request(), session=connection)
            sent = kit.sent(store._engine)
            calls = [runs.submit(key, kit.request()) for key in keys]
            answers: list[Any] = list(await asyncio.gather(*calls, return_exceptions=True))
            inserts = [each for each in sent if "INSERT INTO agentruns.runs" in each]
            assert len(inserts) == SETS + ATTEMPTS - 1
            failure = answers.pop(held)
            assert isinstance(failure, StoreUnavailableError)
            assert (failure.attempts, failure.sqlstate) == (ATTEMPTS, "55P03")
            assert [getattr(each, "outcome", each) for each in answers] == [COMMITTED] * 7
            assert await kit.rows() == dict.fromkeys(ONE_RUN, 7)
            await transaction.commit()
            again = await runs.submit(keys[held], kit.request())
            assert (again.outcome, again.snapshot) == (IDEMPOTENT, theirs.snapshot)

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 8)


@pytest.mark.direct("a pooler gives backends, not a store, their timeouts")
def test_A7_a_lone_call_behind_a_competitor_ends_after_its_attempts(kit: Any, run: Run) -> None:
    """And not after so long that its stamp is too old, is taken afresh, and the waiting begins anew."""
    options = StoreOptions(lock_timeout=timedelta(milliseconds=150), attempts=3)

    async def work() -> None:
        async with AgentRunStore(kit.url, options) as store, kit.engine() as engine, engine.begin() as connection:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            key = AgentSubmissionKey.generate()
            await runs.submit(key, kit.request(), session=connection)
            sent = kit.sent(store._engine)
            with pytest.raises(StoreUnavailableError) as waited:
                await runs.submit(key, kit.request())
            assert (waited.value.attempts, waited.value.sqlstate) == (3, "55P03")
            assert sum("INSERT INTO agentruns.runs" in each for each in sent) == 3

    run(work())
