"""A run that a row of the host refers to, or that somebody holds, stays whole; its neighbours go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import Connection, insert, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.ids import RunId
from agentruns.operations.retention import HeldRun, RetentionBatch, RetentionPolicy, plan_retention, remove_runs
from agentruns.orm.runs import RunRow
from agentruns.testing.samples import TENANT

HOUR = timedelta(hours=1)
POLICY = RetentionPolicy(keep_succeeded=HOUR, keep_failed=HOUR, keep_cancelled=HOUR, retry_guarantee=HOUR)
HOLDS = """
CREATE TABLE public.legal_holds (tenant_id text COLLATE "C", run_id uuid,
  CONSTRAINT fk_legal_holds_run FOREIGN KEY (tenant_id, run_id) REFERENCES agentruns.runs)
"""


def in_order(sample: Any, count: int) -> list[Any]:
    first = sample().since - 10 * HOUR
    return [sample(since=first + timedelta(seconds=place)) for place in range(count)]


def hold(archive: Any, *samples: Any) -> None:
    archive.execute(HOLDS)
    for each in samples:
        archive.execute("INSERT INTO public.legal_holds VALUES (:tenant_id, :run_id)", **each.key)


@pytest.mark.parametrize("places", [[0], [99], [100], [219], [0, 1, 2, 50, 99, 100, 218]])
def test_held_runs_are_passed_over_and_named(archive: Any, sample: Any, places: list[int]) -> None:
    samples = in_order(sample, 220)
    archive.write(*samples, bare=True)
    held = [samples[place] for place in places]
    hold(archive, *held)
    steps = archive.steps()
    found = [step for step in steps if isinstance(step, HeldRun)]
    assert [step.run_id.text for step in found] == [each.run_id for each in held]
    assert {(step.tenant_id, step.reason, step.constraint) for step in found} == {
        (TENANT, "referenced", "fk_legal_holds_run")
    }
    assert sum(step.run_count for step in steps if isinstance(step, RetentionBatch)) == 220 - len(held)
    assert archive.left() == {each.run_id for each in held}


def test_a_hold_that_is_lifted_lets_the_run_go(archive: Any, sample: Any, role: str) -> None:
    each = sample()
    archive.write(each)
    before = archive.everything()
    hold(archive, each)

    def steps(connection: Connection) -> list[Any]:
        return list(remove_runs(connection, POLICY, tenant_id=TENANT))

    (held,) = archive.on_connection(steps, role=role)
    assert held.run_id.text == each.run_id
    assert archive.everything() == before
    archive.execute("DELETE FROM public.legal_holds")
    assert archive.removed() == [1]


@contextmanager
def held_by_another(archive: Any, statement: str, **values: Any) -> Iterator[None]:
    """Hold locks in a transaction of somebody else for as long as the block lasts."""
    connection = create_async_engine(archive.url, poolclass=NullPool).connect()

    async def begin() -> None:
        await connection.start()
        await connection.execute(text(statement), values)

    archive.run(begin())
    try:
        yield
    finally:
        archive.run(connection.close())


def test_a_run_that_somebody_holds_is_passed_over_at_once_and_named_at_the_end(archive: Any, sample: Any) -> None:
    """As by a host's row that refers to it and is not committed yet."""
    held, free = in_order(sample, 2)
    archive.write(held, free)
    query = "SELECT 1 FROM agentruns.runs WHERE run_id = :run_id FOR KEY SHARE"
    with held_by_another(archive, query, run_id=held.run_id):
        batch, locked = archive.steps()
        assert (batch.run_count, locked) == (
            1,
            HeldRun(tenant_id=TENANT, run_id=RunId(held.run_id), reason="locked"),
        )
        assert archive.left() == {held.run_id}
    assert archive.removed() == [1]


def test_of_runs_that_stay_each_is_named_once(archive: Any, sample: Any) -> None:
    """A legal hold is none that somebody else has locked, also where both are there."""
    referenced, locked, isolated = in_order(sample, 3)
    archive.write(referenced, locked, evolve(isolated, status="active", quarantined_at=isolated.since), bare=True)
    hold(archive, referenced)
    query = "SELECT 1 FROM agentruns.runs WHERE run_id <> :run_id FOR NO KEY UPDATE"
    with held_by_another(archive, query, run_id=referenced.run_id):
        steps = archive.steps(evolve(POLICY, include_quarantined=True))
    assert [(step.run_id.text, step.reason) for step in steps] == [
        (referenced.run_id, "referenced"),
        (locked.run_id, "locked"),
        (isolated.run_id, "locked"),
    ]


def test_a_run_that_becomes_removable_meanwhile_was_not_passed_over(archive: Any, sample: Any) -> None:
    """It stands before a place that is passed already, and the next call removes it."""
    policy = evolve(POLICY, keep_failed=2 * HOUR)
    archive.write(sample(since=sample().since + HOUR / 2), bare=True)
    late: list[Any] = []

    def steps(connection: Connection) -> list[Any]:
        removing = remove_runs(connection, policy, tenant_id=TENANT)
        first = next(removing)
        late.append(sample(status="failed", since=sample().since + timedelta(milliseconds=300)))
        with connection.begin():
            connection.execute(insert(RunRow), late[0].run_row())
        while not list(plan_retention(connection, policy, tenant_id=TENANT)):
            time.sleep(0.05)
        return [first, *removing]

    (batch,) = archive.on_connection(steps)
    assert batch.run_count == 1
    assert archive.left() == {late[0].run_id}
    assert archive.removed(policy) == [1]


def test_a_run_whose_child_row_somebody_holds_stands_alone_when_the_wait_is_over(archive: Any, sample: Any) -> None:
    """As by a key that is being attached to its admission."""
    samples = in_order(sample, 4)
    archive.write(*samples)
    query = "SELECT 1 FROM agentruns.agent_admissions WHERE run_id = :run_id FOR KEY SHARE"

    def steps(connection: Connection) -> list[Any]:
        with connection.begin():
            connection.execute(text("SET lock_timeout = '50ms'"))
        return list(remove_runs(connection, POLICY, tenant_id=TENANT))

    with held_by_another(archive, query, run_id=samples[2].run_id):
        found = archive.on_connection(steps)
        assert [(step.run_id.text, step.reason) for step in found if isinstance(step, HeldRun)] == [
            (samples[2].run_id, "locked")
        ]
        assert archive.left() == {samples[2].run_id}
    assert archive.removed() == [1]
