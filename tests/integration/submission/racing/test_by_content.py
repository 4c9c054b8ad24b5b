"""Who asks for the same run or the same key: one answer for each, in every isolation level."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy.exc import DBAPIError

from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import AgentAdmissionConflictError, AgentRunsError, AgentSubmissionConflictError
from agentruns.store.transient import sqlstate_of

Race = Callable[[Any], None]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
SUBMITTERS = 8
SERIALIZATION = "40001"


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


async def whole(
    arena: Any, way: Any, key: AgentSubmissionKey, request: Any, *, runs: Any = None, barrier: Any = None
) -> Any:
    """Submit and commit; repeat the whole transaction when the server says that it cannot be serialised."""
    while True:
        async with arena.party(way, runs) as party:
            await party.look()
            if barrier is not None:
                await barrier.wait()
                barrier = None
            try:
                admitted = await party.submit(key, request)
                await party.commit()
            except DBAPIError as failure:
                if way.sees_later_commits or sqlstate_of(failure) != SERIALIZATION:
                    raise
            except AgentRunsError as refusal:
                return refusal
            else:
                return admitted


async def all_at_once(arena: Any, way: Any, key: AgentSubmissionKey, requests: list[Any]) -> list[Any]:
    barrier = asyncio.Barrier(len(requests))
    return await asyncio.gather(*(whole(arena, way, key, each, barrier=barrier) for each in requests))


def test_SUB_06_of_many_with_one_key_and_the_same_content_one_commits(race: Race, way: Any) -> None:
    async def work(arena: Any) -> None:
        key, requests = fresh(), [arena.request() for _ in range(SUBMITTERS)]
        answers = await all_at_once(arena, way, key, requests)
        assert Counter(each.outcome for each in answers) == {COMMITTED: 1, IDEMPOTENT: SUBMITTERS - 1}
        (winner,) = {each.snapshot for each in answers}
        assert winner.provenance.run_id in {each.run_id for each in requests}
        # The other candidates leave no row, wherever they could stand.
        assert await arena.rows() == ONE_RUN

    race(work)


def test_SUB_06_of_many_with_one_key_and_different_content_one_commits_and_the_others_conflict(
    race: Race, way: Any
) -> None:
    async def work(arena: Any) -> None:
        key, requests = fresh(), [arena.request(input={"n": number}) for number in range(SUBMITTERS)]
        answers = await all_at_once(arena, way, key, requests)
        (winner,) = (each for each in answers if not isinstance(each, AgentRunsError))
        assert winner.outcome is COMMITTED
        won = requests[answers.index(winner)]
        assert winner.snapshot.provenance.run_id == won.run_id
        for request, lost in zip(requests, answers, strict=True):
            if lost is winner:
                continue
            assert type(lost) is AgentSubmissionConflictError
            assert (lost.run_id, lost.recorded_digest) == (won.run_id, won.submission_digest)
            assert lost.offered_digest == request.submission_digest
        assert await arena.runs.load_by_key(arena.tenant, key) == winner.snapshot
        assert await arena.rows() == ONE_RUN

    race(work)


async def one_after_the_other(
    arena: Any, way: Any, *pairs: tuple[AgentSubmissionKey, Any], runs: Any = None
) -> list[Any]:
    return [await whole(arena, way, key, request, runs=runs) for key, request in pairs]


@pytest.mark.parametrize("other", ["graph", "version", "agent"])
def test_SUB_06_another_graph_or_agent_under_one_key_conflicts(
    race: Race, way: Any, other: str, graph_of: Callable[..., Any]
) -> None:
    async def work(arena: Any) -> None:
        graphs = {"graph": graph_of("other-graph"), "version": graph_of(version="2.0.0")}
        content = {"agent": "other-agent"} if other == "agent" else {"graph": graphs[other]}
        executables = arena.kit.executables_of(graphs=(arena.kit.graph, *graphs.values()))
        async with arena.kit.runs(publish=False, executables=executables) as runs:
            for graph in graphs.values():
                await runs.publish(arena.tenant, graph)
            key, first, second = fresh(), arena.request(), arena.request(**content)
            one, two, alone = await one_after_the_other(
                arena, way, (key, first), (key, second), (fresh(), second), runs=runs
            )
            assert (one.outcome, type(two), alone.outcome) == (COMMITTED, AgentSubmissionConflictError, COMMITTED)
            assert (two.run_id, two.offered_digest) == (first.run_id, second.submission_digest)
            assert await runs.load_by_key(arena.tenant, key) == one.snapshot

    race(work)


def test_SUB_06_one_key_in_two_tenants_is_two_runs(race: Race, way: Any) -> None:
    async def work(arena: Any) -> None:
        key, elsewhere = fresh(), evolve(arena, tenant=TenantId(f"{arena.tenant}-b"))
        await arena.runs.publish(elsewhere.tenant, arena.kit.graph)
        mine, theirs = await one_after_the_other(arena, way, (key, arena.request()), (key, elsewhere.request()))
        assert (mine.outcome, theirs.outcome) == (COMMITTED, COMMITTED)
        assert mine.snapshot.provenance.run_id != theirs.snapshot.provenance.run_id
        for tenant, admitted in ((arena.tenant, mine), (elsewhere.tenant, theirs)):
            assert await arena.runs.load_by_key(tenant, key) == admitted.snapshot
            assert admitted.snapshot.provenance.tenant_id == tenant
        assert await arena.rows() == await elsewhere.rows() == ONE_RUN

    race(work)


def test_SUB_06_a_second_key_for_a_candidate_is_a_conflict_of_its_kind(race: Race, way: Any) -> None:
    async def work(arena: Any) -> None:
        request = arena.request()
        other = arena.request(ids=request.ids, input={"n": 2})
        first, same, different = await one_after_the_other(
            arena, way, (fresh(), request), (fresh(), request), (fresh(), other)
        )
        assert first.outcome is COMMITTED
        assert type(same) is AgentSubmissionConflictError
        assert (same.run_id, same.recorded_digest) == (request.run_id, request.submission_digest)
        assert same.offered_digest == request.submission_digest
        assert type(different) is AgentAdmissionConflictError
        assert (different.tenant_id, different.run_id) == (arena.tenant, request.run_id)
        assert await arena.rows() == ONE_RUN

    race(work)


@pytest.mark.parametrize("first", ["submit", "admit"])
def test_SUB_06_submit_and_admit_with_the_same_ids_make_one_run_with_the_key(race: Race, way: Any, first: str) -> None:
    async def work(arena: Any) -> None:
        key, request = fresh(), arena.request()
        answers = {}
        for each in (first, "admit" if first == "submit" else "submit"):
            async with arena.party(way) as party:
                answers[each] = await (party.submit(key, request) if each == "submit" else party.admit(request))
                await party.commit()
        assert answers["submit"].outcome is COMMITTED
        assert answers["admit"].outcome is (COMMITTED if first == "admit" else IDEMPOTENT)
        assert answers["submit"].snapshot == answers["admit"].snapshot
        assert await arena.runs.load_by_key(arena.tenant, key) == answers["submit"].snapshot
        assert await arena.rows() == {**ONE_RUN, "agent_submission_keys": 1 + (first == "admit")}

    race(work)


@pytest.mark.usefixtures("own_way")
@pytest.mark.parametrize("first", ["submit", "admit"])
def test_SUB_06_submit_behind_an_uncommitted_admit_and_the_reverse(race: Race, first: str) -> None:
    async def work(arena: Any) -> None:
        key, request = fresh(), arena.request()
        async with arena.joining() as holder:
            one = await (holder.submit(key, request) if first == "submit" else holder.admit(request))
            waiting = asyncio.create_task(
                arena.runs.admit(request) if first == "submit" else arena.runs.submit(key, request)
            )
            await arena.see_waiting(await holder.pid)
            await holder.commit()
            two = await waiting
            assert one.outcome is COMMITTED
            assert two.outcome is (IDEMPOTENT if first == "submit" else COMMITTED)
            assert two.snapshot == one.snapshot == await arena.runs.load_by_key(arena.tenant, key)

    race(work)


@pytest.mark.parametrize("is_same", [True, False])
@pytest.mark.parametrize("first", ["attach", "submit"])
def test_SUB_06_a_key_that_is_attached_and_submitted_stands_for_the_first(
    race: Race, way: Any, first: str, *, is_same: bool
) -> None:
    async def work(arena: Any) -> None:
        key, keyless, other = fresh(), arena.request(), arena.request(**({} if is_same else {"input": {"n": 2}}))
        await arena.runs.admit(keyless)
        pairs = [(key, keyless), (key, other)] if first == "attach" else [(key, other), (key, keyless)]
        one, two = await one_after_the_other(arena, way, *pairs)
        winner = pairs[0][1]
        assert one.outcome is COMMITTED
        assert one.snapshot.provenance.run_id == winner.run_id
        if is_same:
            assert (two.outcome, two.snapshot) == (IDEMPOTENT, one.snapshot)
        else:
            assert type(two) is AgentSubmissionConflictError
            assert (two.run_id, two.offered_digest) == (winner.run_id, pairs[1][1].submission_digest)
        assert await arena.runs.load_by_key(arena.tenant, key) == one.snapshot

    race(work)


@pytest.mark.usefixtures("own_way")
@pytest.mark.parametrize("is_same", [True, False])
@pytest.mark.parametrize("first", ["attach", "submit"])
def test_SUB_06_attach_behind_an_uncommitted_submit_and_the_reverse(race: Race, first: str, *, is_same: bool) -> None:
    async def work(arena: Any) -> None:
        key, keyless, other = fresh(), arena.request(), arena.request(**({} if is_same else {"input": {"n": 2}}))
        winner, loser = (keyless, other) if first == "attach" else (other, keyless)
        async with arena.joining() as holder:
            await arena.runs.admit(keyless)
            one = await holder.submit(key, winner)
            waiting = asyncio.create_task(arena.runs.submit(key, loser))
            await arena.see_waiting(await holder.pid)
            await holder.commit()
            assert (one.outcome, one.snapshot.provenance.run_id) == (COMMITTED, winner.run_id)
            if is_same:
                two = await waiting
                assert (two.outcome, two.snapshot) == (IDEMPOTENT, one.snapshot)
            else:
                with pytest.raises(AgentSubmissionConflictError) as conflict:
                    await waiting
                assert conflict.value.run_id == winner.run_id

    race(work)


def test_SUB_06_a_key_whose_run_was_removed_is_free(race: Race, way: Any) -> None:
    async def work(arena: Any) -> None:
        key = fresh()
        old = await whole(arena, way, key, arena.request())
        await arena.remove()
        assert await arena.rows() == {}
        new = await whole(arena, way, key, arena.request(input={"n": 2}))
        assert new.outcome is COMMITTED
        assert new.snapshot.provenance.run_id != old.snapshot.provenance.run_id
        assert await arena.rows() == ONE_RUN

    race(work)
