"""What no lease can be asked for is refused before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId
from agentruns.errors import InvalidOptionError
from agentruns.runtime.driver.options import DurableGraphDriverOptions
from agentruns.testing.drives import TENANT, DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
CANARY = "canary-0123456789abcdef"


def one() -> Any:
    return chain(a=lambda _: Finish({}))


def test_a_delay_of_a_release_has_a_bound(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        fence = (await world.claimed(run_id)).fence
        before = await world.everything()
        five = timedelta(minutes=5)
        wrong: tuple[Any, ...] = (timedelta(0), timedelta(seconds=-1), five + timedelta(microseconds=1), 3)
        for delay in wrong:
            with pytest.raises(InvalidOptionError) as refused:
                await world.store.release(fence, delay=delay)
            assert (refused.value.option, refused.value.bound) == ("delay", "0:00:00.000001..0:05:00")
        assert await world.everything() == before
        await world.store.release(fence, delay=five)
        (row,) = await world.rows("SELECT scheduler_not_before - scheduler_ready_at AS gate FROM agentruns.runs")
        assert row.gate == five

    in_world(work, one(), lease=LONG)


def test_a_batch_claim_takes_as_many_different_ids_as_runs(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        await world.submitted()
        ids = [AttemptId.generate() for _ in range(65)]
        before = await world.everything()
        wrong: tuple[tuple[Any, list[AttemptId], str, str], ...] = (
            (0, [], "limit", "1..64"),
            (65, ids, "limit", "1..64"),
            (True, ids[:1], "limit", "1..64"),
            (2, ids[:1], "attempt_ids", "2 different ids"),
            (1, ids[:2], "attempt_ids", "1 different ids"),
            (2, [ids[0], ids[0]], "attempt_ids", "2 different ids"),
        )
        digests = list(world.executables.graph_digests)
        for limit, attempt_ids, option, bound in wrong:
            with pytest.raises(InvalidOptionError) as refused:
                await world.store.claim_ready(TENANT, limit, attempt_ids=attempt_ids, graph_digests=digests)
            assert (refused.value.option, refused.value.bound) == (option, bound)
        assert await world.everything() == before
        (held,) = await world.store.claim_ready(TENANT, 64, attempt_ids=ids[:64], graph_digests=digests)
        assert held.fence.attempt_id == ids[0]

    in_world(work, one(), lease=LONG)


def test_a_value_of_another_type_is_refused_and_not_repeated(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id, attempt_id = await world.submitted(), AttemptId.generate()
        held, store = await world.claimed(run_id), world.store
        other: Any = CANARY
        calls: list[tuple[Any, str]] = [
            (store.claim(other, run_id, attempt_id), "pass tenant_id as TenantId, not str"),
            (store.claim(TENANT, other, attempt_id), "pass run_id as RunId, not str"),
            (store.claim(TENANT, run_id, other), "pass attempt_id as AttemptId, not str"),
            (store.supersede(TENANT, run_id, other), "pass attempt_id as AttemptId, not str"),
            (
                store.supersede(TENANT, run_id, attempt_id, expected_epoch=other),
                "pass expected_epoch as FencingEpoch, not str",
            ),
            (
                store.claim_ready(TENANT, 1, attempt_ids=[other], graph_digests=[]),
                "pass attempt_ids as AttemptId, not str",
            ),
            (
                store.claim_ready(TENANT, 1, attempt_ids=[attempt_id], graph_digests=[other]),
                "pass graph_digests as Digest, not str",
            ),
            (store.renew(other, desired=held.lease.expires_at), "pass fence as RunFence, not str"),
            (store.renew(held.fence, desired=other), "pass desired as Timestamp, not str"),
            (store.release(other), "pass fence as RunFence, not str"),
            (store.observe(other), "pass fence as RunFence, not str"),
            (
                store.defer(held.fence, head=other, not_before=held.lease.expires_at),
                "pass head as JournalHead, not str",
            ),
        ]
        before = await world.everything()
        for call, told in calls:
            with pytest.raises(TypeError) as refused:
                await call
            assert str(refused.value) == told
        assert await world.everything() == before

    in_world(work, one(), lease=LONG)


def test_the_bounds_of_the_fold_are_an_object_of_their_own() -> None:
    wrong: Any = 5
    with pytest.raises(InvalidOptionError) as refused:
        DurableGraphDriverOptions(replay=wrong)
    assert (refused.value.option, refused.value.value, refused.value.bound) == ("replay", "int", "GraphReplayLimits")
