"""What becomes of a stamp that the database refuses."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import (
    AgentAdmissionRejectedError,
    ContentionError,
    DatabaseClockRegressionError,
)
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore

Run = Callable[[Coroutine[Any, Any, Any]], Any]


COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT


def kinds(sent: list[str]) -> list[str]:
    """Name the statements in the order in which they were sent, and forget them."""
    marks = {"INSERT INTO agentruns.runs": "insert", "is_head_passed": "ends", "is_read_only": "probe"}
    found = [next((kind for mark, kind in marks.items() if mark in each), each) for each in sent]
    sent.clear()
    return found


def test_a_stamp_ahead_of_the_databases_clock_is_a_regression_and_corrected(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            ahead = store.clock.stamp().plus(timedelta(hours=1))
            store.clock.observe(ahead)
            key = AgentSubmissionKey.generate()
            with pytest.raises(DatabaseClockRegressionError) as failure:
                await runs.submit(key, kit.request())
            error: Any = failure.value
            assert error.observed < ahead <= error.recorded
            assert await kit.rows() == {}
            assert (await runs.submit(key, kit.request())).outcome is COMMITTED

    run(work())


def test_a_deadline_that_passes_on_the_way_is_the_databases_to_see(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            now = store.clock.stamp()
            store.clock.correct(now.plus(timedelta(seconds=-10)))
            sent = kit.sent(store._engine)
            with pytest.raises(AgentAdmissionRejectedError) as late:
                await runs.submit(AgentSubmissionKey.generate(), kit.request(deadline=now.plus(timedelta(seconds=-5))))
            assert (late.value.reason, kinds(sent)) == ("deadline", ["insert", "probe"])

    run(work())
    assert run(kit.rows()) == {}


def test_a_stale_stamp_is_stamped_again(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            store.clock.correct(store.clock.stamp().plus(timedelta(seconds=-16)))
            sent = kit.sent(store._engine)
            assert (await runs.submit(AgentSubmissionKey.generate(), kit.request())).outcome is COMMITTED
            assert kinds(sent) == ["insert", "probe", "insert"]
            store.clock.correct(store.clock.stamp().plus(timedelta(seconds=-11)))
            assert (await runs.submit(AgentSubmissionKey.generate(), kit.request())).outcome is COMMITTED
            assert kinds(sent) == ["insert"]

    run(work())


def test_an_insert_that_nothing_explains_is_repeated_three_times(
    kit: Any, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentruns.store.admissions.STAMP_AGE", timedelta(seconds=-1))

    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            sent = kit.sent(store._engine)
            with pytest.raises(ContentionError) as failure:
                await runs.submit(AgentSubmissionKey.generate(), kit.request())
            assert (failure.value.attempts, failure.value.retryable) == (3, True)
            assert kinds(sent) == ["insert", "probe"] * 4

    run(work())
    assert run(kit.rows()) == {}
