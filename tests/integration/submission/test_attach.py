"""A run that was admitted without a key gets one, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agentruns.domain.submission import (
    MutationOutcome,
    key_digest,
    keyless_digest,
)
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import (
    AgentSubmissionConflictError,
)
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.keys import KeyAttachment

Run = Callable[[Coroutine[Any, Any, Any]], Any]


COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT


ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}


def test_a_key_is_attached_to_a_run_that_was_admitted_without(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            request, key = kit.request(), AgentSubmissionKey.generate()
            admitted = await runs.admit(request)
            assert (await runs.admit(request)).outcome is IDEMPOTENT
            attached = await runs.submit(key, request)
            assert (attached.outcome, attached.snapshot) == (COMMITTED, admitted.snapshot)
            assert (await runs.submit(key, request)).outcome is IDEMPOTENT
            assert (await runs.submit(key, kit.request())).outcome is IDEMPOTENT
            assert (await runs.admit(request)).outcome is IDEMPOTENT
            with pytest.raises(AgentSubmissionConflictError):
                await runs.submit(AgentSubmissionKey.generate(), request)
            assert await runs.load_by_key(request.tenant_id, key) == admitted.snapshot

    run(work())
    assert run(kit.rows()) == {**ONE_RUN, "agent_submission_keys": 2}


async def attached(store: AgentRunStore, request: Any, key: AgentSubmissionKey) -> bool:
    """Send the statement that attaches a key, whatever a probe would have said."""
    attachment = KeyAttachment(
        tenant_id=request.tenant_id,
        run_id=request.run_id,
        key_digest=key_digest(request.tenant_id, key),
        keyless_digest=keyless_digest(request.tenant_id, request.run_id),
    )
    return (await store.run(lambda work: work.keys.attach([attachment])))[0]


def test_a_key_is_attached_to_a_run_without_one_and_only_while_it_is_free(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            keyless, keyed, taken = kit.request(), kit.request(), AgentSubmissionKey.generate()
            await runs.admit(keyless)
            await runs.submit(taken, keyed)
            free, other = AgentSubmissionKey.generate(), AgentSubmissionKey.generate()
            cases = [(keyed, free, False), (keyless, taken, False), (keyless, free, True), (keyless, other, False)]
            for request, key, expected in cases:
                assert await attached(store, request, key) is expected

    run(work())
    assert run(kit.rows()) == {**dict.fromkeys(ONE_RUN, 2), "agent_submission_keys": 3}


def test_of_two_keys_at_once_one_is_attached(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as first, kit.runs(publish=False) as second:
            for _ in range(20):
                request = kit.request()
                await first.admit(request)
                calls = [each.submit(AgentSubmissionKey.generate(), request) for each in (first, second)]
                answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
                kinds = Counter(getattr(each, "outcome", type(each)) for each in answers)
                assert kinds == {COMMITTED: 1, AgentSubmissionConflictError: 1}

    run(work())


def test_submit_against_admit_with_the_same_ids_makes_one_run_with_the_key(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with kit.runs() as first, kit.runs(publish=False) as second:
            for _ in range(30):
                request, key = kit.request(), AgentSubmissionKey.generate()
                submitted, admitted = await asyncio.gather(first.submit(key, request), second.admit(request))
                assert submitted.outcome is COMMITTED
                assert admitted.outcome in (COMMITTED, IDEMPOTENT)
                assert (await first.load_by_key(request.tenant_id, key)).provenance.run_id == request.run_id

    run(work())
    assert run(kit.rows())["runs"] == 30
