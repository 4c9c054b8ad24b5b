"""An audit is silent over what the library has written, and finds exactly what was damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.errors import InvalidOptionError, RunNotFoundError
from agentruns.operations.audit import AuditProgress, AuditSample, AuditScope, audit_runs, walking
from agentruns.operations.audit.snapshot import moment
from agentruns.testing.drives import TENANT
from agentruns.testing.invariants import ASSERTIONS
from agentruns.testing.mixed_runs import MIXED_STATES, remove
from agentruns.testing.planted_faults import PlantedFault, plant_ten
from agentruns.testing.stories import STORIES
from agentruns.testing.tampering import superuser

Work = Callable[..., None]

WHOLE_SAMPLE = AuditScope(sample=AuditSample(share=1))


def test_OPS_08_runs_in_every_state_audit_clean_with_and_without_their_application(audited: Work) -> None:
    async def work(mixed: Any) -> None:
        await mixed.bring()
        before = await mixed.world.everything()
        assert [each.sentence for each in await mixed.findings()] == []
        assert (mixed.progress.runs, mixed.progress.unproven, mixed.progress.is_complete) == (10, 10, True)
        assert [each.sentence for each in await mixed.findings(executables=mixed.world.executables)] == []
        assert (mixed.progress.runs, mixed.progress.unproven, mixed.progress.events) == (10, 0, 59)
        assert await mixed.world.everything() == before

    audited(work)


def test_OPS_08_ten_faults_of_ten_kinds_are_found_and_nothing_else(audited: Work) -> None:
    async def work(mixed: Any) -> None:
        await asyncio.gather(*(mixed.bring(6, name) for name in MIXED_STATES))
        for run_id in [await MIXED_STATES["succeeded"](mixed.world) for _ in range(2)]:
            await remove(mixed.world, run_id)
        assert await mixed.findings() == []
        async with superuser(mixed.world.url) as connection:
            planted = await plant_ten(connection, mixed.runs)
        found = await mixed.findings()
        assert sorted(PlantedFault(each.label, each.run_id, each.place) for each in found) == planted
        assert {each.tenant_id for each in found} == {TENANT.text}
        assert (mixed.progress.runs, mixed.progress.findings) == (60, 10)
        # Rows of a run that is not there are of no run that could be drawn.
        assert await mixed.findings(WHOLE_SAMPLE) == [each for each in found if each.label != "OPS-9"]
        assert (mixed.progress.runs, mixed.progress.findings) == (60, 9)

    audited(work)


def test_every_law_is_silent_over_every_story(telling: Work) -> None:
    async def work(mixed: Any, tell: Any) -> None:
        for name in STORIES:
            await tell(mixed.world.runs, name)
        await tell(mixed.world.runs, "fresh", is_attached=True)
        assert [each.sentence for each in await mixed.findings()] == []
        engine = create_async_engine(mixed.world.store_url, poolclass=NullPool)
        async with engine.connect() as connection:
            for check in ASSERTIONS:
                await check(connection)
        await engine.dispose()

    telling(work)


def test_a_run_that_moves_meanwhile_is_no_finding(audited: Work) -> None:
    async def work(mixed: Any) -> None:
        moving = [
            asyncio.create_task(mixed.bring(3, name)) for name in ("succeeded", "retried", "waiting", "cancelled")
        ]
        audits = 0
        while audits == 0 or not all(task.done() for task in moving):
            assert [each.sentence for each in await mixed.findings()] == []
            audits += 1
        await asyncio.gather(*moving)
        await mixed.findings()
        assert mixed.progress.runs == 12

    audited(work)


def test_batches_cover_every_key_and_meet_no_run_twice(audited: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(mixed: Any) -> None:
        await mixed.bring(3, "queued", "waiting")
        async with superuser(mixed.world.url) as connection:
            await connection.execute(text("UPDATE agentruns.runs SET superstep = 9"))
        whole = await mixed.findings()
        assert len(whole) == 6
        for name, most in (("MAXIMUM_EVENTS", 5), ("MAXIMUM_RUNS", 2)):
            monkeypatch.setattr(walking, name, most)
            assert await mixed.findings() == whole
            assert mixed.progress.runs == 6

    audited(work)


def test_a_scope_is_read_and_nothing_beside_it(audited: Work) -> None:
    async def work(mixed: Any) -> None:
        await mixed.bring(3, "queued")
        ids = sorted(run_id.text for run_id in mixed.runs["queued"])
        async with superuser(mixed.world.url) as connection:
            await connection.execute(text("UPDATE agentruns.runs SET superstep = 9"))

        async def found(scope: AuditScope) -> list[str]:
            return [each.run_id or "" for each in await mixed.findings(scope)]

        assert await found(AuditScope.run(TENANT, RunId(ids[1]))) == [ids[1]]
        assert await found(AuditScope.tenant(TENANT)) == ids
        assert await found(AuditScope.tenant(TENANT, after_run=RunId(ids[0]))) == ids[1:]
        assert await found(AuditScope.tenant(TenantId("tenant-"))) == []
        with pytest.raises(RunNotFoundError):
            await found(AuditScope.run(TenantId("tenant-b"), RunId(ids[1])))

    audited(work)


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(1, "true"), (0.5, "hash < 0"), (0.25, "hash < -(2::numeric ^ 62)"), (2**-63, "hash <= -(2::numeric ^ 63) + 1")],
)
def test_a_sample_is_the_runs_that_its_seed_draws(
    audited: Work, monkeypatch: pytest.MonkeyPatch, share: float, drawn: str
) -> None:
    async def work(mixed: Any) -> None:
        await mixed.bring(10, "queued")
        async with superuser(mixed.world.url) as connection:
            await connection.execute(text("UPDATE agentruns.runs SET superstep = 9"))
            hashed = "SELECT run_id, uuid_hash_extended(run_id, 7) AS hash FROM agentruns.runs"
            asked = text(f"SELECT run_id FROM ({hashed}) AS h WHERE {drawn} ORDER BY run_id")
            wanted = [str(run_id) for run_id in (await connection.execute(asked)).scalars()]
        monkeypatch.setattr(walking, "MAXIMUM_RUNS", 3)
        sample = AuditSample(share=share, seed=7)
        for scope in (AuditScope(sample=sample), AuditScope.tenant(TENANT, sample=sample)):
            assert [each.run_id for each in await mixed.findings(scope)] == wanted
            assert (mixed.progress.run_count, mixed.progress.runs) == (len(wanted), len(wanted))
            assert mixed.progress.is_complete
        # It goes on after a run as it would have.
        for place, run_id in enumerate(wanted[:2], 1):
            rest = AuditScope.tenant(TENANT, after_run=RunId(run_id), sample=sample)
            assert [each.run_id for each in await mixed.findings(rest)] == wanted[place:]

    audited(work)


def test_samples_differ_from_each_other() -> None:
    seeds = {AuditSample(share=0.5).seed for _ in range(20)}
    assert len(seeds) > 1
    assert all(0 <= seed < 2**31 for seed in seeds)


@pytest.mark.parametrize(
    ("members", "option"),
    [
        ({"share": 0}, "share"),
        ({"share": 1.01}, "share"),
        ({"share": float("nan")}, "share"),
        ({"share": 0.5, "seed": -1}, "seed"),
        ({"share": 0.5, "seed": 2**31}, "seed"),
    ],
)
def test_a_sample_out_of_bounds_is_refused(members: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        AuditSample(**members)
    assert refused.value.option == option


@pytest.mark.parametrize(
    "members",
    [
        {"tenant_id": TENANT, "run_id": RunId.generate(), "sample": AuditSample(share=0.5)},
        {"run_id": RunId.generate()},
        {"after_run": RunId.generate()},
        {"tenant_id": TENANT, "run_id": RunId.generate(), "after_run": RunId.generate()},
    ],
)
def test_a_scope_that_says_too_little_or_too_much_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError):
        AuditScope(**members)


def test_a_callers_transaction_is_read_and_left_as_it_is(audited: Work) -> None:
    async def work(mixed: Any) -> None:
        await mixed.bring(1, "queued")
        engine = create_async_engine(mixed.world.url, poolclass=NullPool)
        async with engine.connect() as connection:
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
            await connection.execute(text("DELETE FROM agentruns.run_checkpoints"))
            found = [each.label async for each in audit_runs(connection)]
            assert (found, connection.in_transaction()) == (["SUB-13"], True)
            await connection.rollback()
            assert [each async for each in audit_runs(connection)] == []
            assert not connection.in_transaction()
        await engine.dispose()

    audited(work)


def test_an_unreadable_definition_is_a_finding_and_no_reason_to_stop(audited: Work) -> None:
    async def work(mixed: Any) -> None:
        await mixed.bring(1, "queued", "waiting")
        async with superuser(mixed.world.url) as connection:
            await connection.execute(text("UPDATE agentruns.graph_definitions SET definition = '{}'"))
        found = await mixed.findings()
        assert sorted((each.label, each.place) for each in found) == [
            ("GRA-1", "graph_definitions[name=sample-graph version=1.0.0].definition"),
            ("LED-1", "graph_definitions.definition"),
            ("LED-1", "graph_definitions.definition"),
        ]
        assert mixed.progress.runs == 2

    audited(work)


def test_a_moment_is_one_snapshot_that_nothing_can_write_in(audited: Work) -> None:
    async def work(mixed: Any) -> None:
        engine = create_async_engine(mixed.world.store_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        names = ("transaction_isolation", "transaction_read_only", "jit", "TimeZone")
        selected = ", ".join(f"current_setting('{name}') AS n{place}" for place, name in enumerate(names))
        async with engine.connect() as connection:
            async with moment(connection, "agentruns") as snapshot:
                (row,) = await snapshot.rows(f"SELECT {selected}", {})
                assert list(row.values()) == ["repeatable read", "on", "off", "UTC"]
            assert not connection.in_transaction()
        await engine.dispose()

    audited(work)


def test_progress_counts_and_says_how_fast() -> None:
    progress = AuditProgress(runs=10, began=-1.0)
    assert progress.seconds > 1
    assert progress.rate == pytest.approx(10 / progress.seconds, rel=0.5)
