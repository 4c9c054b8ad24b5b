"""Revision 0016 over admissions that are older than it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from agentruns import migrations
from agentruns.errors import CorruptDataError, RefusedError

Within = Callable[[str, Callable[[Connection], Any]], Any]

RUN = "0198c0de-0000-7000-8000-000000000001"
#: The golden vector of purpose ``keyless-admission``: tenant ``tenant-a``, this run.
KEYLESS = "b18618fd912877c5fc8e12e7c4eafc8725bfb1d51d68b84ab4999bcb786cff49"
SUBMISSION = "ab" * 32
DATA = f'{{"operation":"agent-admitted","submission_digest":"sha256:{SUBMISSION}"}}'.encode()

INSERT_RUN = """
INSERT INTO agentruns.runs (tenant_id, run_id, thread_id, invocation_id, status, revision, changed_at,
  lifecycle_sequence, head_sequence, head_digest, head_recorded_at, fencing_epoch, superstep, checkpoint_digest,
  scheduler_ready_at)
VALUES ('tenant-a', :run, :run, :run, 'active', 1, :at, 1, 1, sha256(''), :at, 0, 0, sha256(''), :at)
"""
INSERT_EVENT = """
INSERT INTO agentruns.run_events
VALUES ('tenant-a', :run, 1, :run, :at, 0, :kind, sha256(''), :data, sha256(''))
"""
INSERT_ADMISSION = """
INSERT INTO agentruns.agent_admissions VALUES ('tenant-a', :run, 'agent', '1.0.0', '{}', sha256(''), 1)
"""
KEYS = "SELECT tenant_id, run_id::text, origin, encode(key_digest, 'hex'), encode(submission_digest, 'hex'), created_at"


def insert(connection: Connection, statement: str, **more: object) -> None:
    bound = text(statement.replace(":at", "'2026-01-02 03:04:05.000006+00'").replace(":run", f"'{RUN}'"))
    connection.execute(bound, more)


def admitted_0015(connection: Connection) -> None:
    migrations.upgrade(connection, to="15")
    insert(connection, INSERT_RUN)
    insert(connection, INSERT_ADMISSION)
    insert(connection, INSERT_EVENT, kind="agent-admitted", data=DATA)


def applied(connection: Connection) -> Any:
    return connection.execute(text("SELECT max(number) FROM agentruns.applied_revisions")).scalar_one()


def rows(connection: Connection) -> list[Any]:
    tables = ("runs", "run_events", "agent_admissions")
    return [connection.execute(text(f"SELECT * FROM agentruns.{table}")).all() for table in tables]  # noqa: S608


def test_admission_gets_its_keyless_row(empty_database_url: str, within: Within) -> None:
    def work(connection: Connection) -> list[Any]:
        admitted_0015(connection)
        before = rows(connection)
        migrations.upgrade(connection)
        assert rows(connection) == before
        found = connection.execute(text(f"{KEYS} = '2026-01-02 03:04:05.000006Z' FROM agentruns.agent_submission_keys"))
        return [tuple(row) for row in found]

    assert within(empty_database_url, work) == [("tenant-a", RUN, "admitted", KEYLESS, SUBMISSION, True)]
    with pytest.raises(RefusedError):
        within(empty_database_url, lambda connection: migrations.downgrade(connection, to="15"))


@pytest.mark.parametrize("kind", [None, "graph-run-failed"])
def test_run_without_its_admission_event_stops_the_upgrade_by_name(
    empty_database_url: str, within: Within, kind: str | None
) -> None:
    def damage(connection: Connection) -> None:
        migrations.upgrade(connection, to="15")
        insert(connection, INSERT_RUN)
        insert(connection, INSERT_ADMISSION)
        if kind is not None:
            insert(connection, INSERT_EVENT, kind=kind, data=DATA)

    within(empty_database_url, damage)
    with pytest.raises(CorruptDataError) as caught:
        within(empty_database_url, migrations.upgrade)
    assert (caught.value.component, caught.value.run_id) == ("run_events", RUN)
    assert within(empty_database_url, applied) == 15


def test_no_digest_is_guessed(empty_database_url: str, within: Within) -> None:
    def damage(connection: Connection) -> None:
        migrations.upgrade(connection, to="15")
        insert(connection, INSERT_RUN)
        insert(connection, INSERT_ADMISSION)
        insert(connection, INSERT_EVENT, kind="agent-admitted", data=b'{"operation":"agent-admitted"}')

    within(empty_database_url, damage)
    with pytest.raises(DBAPIError, match="submission_digest"):
        within(empty_database_url, migrations.upgrade)
    assert within(empty_database_url, applied) == 15
