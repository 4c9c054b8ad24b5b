"""A key finds its run in whatever status the run is by now."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.errors import AgentSubmissionConflictError

Run = Callable[[Coroutine[Any, Any, Any]], Any]

#: A story that leads to each status, and to isolation. A status that is new has none, and its test fails.
STORIES = {
    "active": "between",
    "waiting": "waiting",
    "cancellation_requested": "cancelling",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "quarantined": "quarantined",
}
PLACES = [*(status.value for status in RunStatus if status is not RunStatus.PENDING), "quarantined"]


@pytest.mark.parametrize("place", PLACES)
def test_A8_a_retry_finds_the_run_in_every_status_and_level(kit: Any, run: Run, tell: Any, place: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs, kit.engine() as engine:
            told = await tell(runs, STORIES[place])
            before, shown = await kit.rows(), await runs.load(told.tenant_id, told.run_id)
            assert shown.status.value == ("active" if place == "quarantined" else place)
            assert shown.quarantined is (place == "quarantined")
            own = await runs.submit(told.key, kit.request())
            assert (own.outcome, own.snapshot) == (MutationOutcome.IDEMPOTENT, shown)
            for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
                async with engine.connect() as connection:
                    await connection.execution_options(isolation_level=level)
                    assert await runs.submit(told.key, kit.request(), session=connection) == own
                    assert await runs.admit(told.request, session=connection) == own
                    with pytest.raises(AgentSubmissionConflictError):
                        await runs.submit(told.key, kit.request(input={"n": 2}), session=connection)
                    await connection.commit()
            assert await kit.rows() == before

    run(work())
