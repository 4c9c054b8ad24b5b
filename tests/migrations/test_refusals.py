"""What the migrations refuse: schemas, files and orders that nobody released, and the loss of evidence."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.errors import (
    InvalidOptionError,
    InvariantError,
    RefusedError,
    SchemaVerificationError,
    UnitOfWorkError,
)
from agentruns.migrations import api, frozen, manifest
from agentruns.migrations.translate import translated

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

RUN = "'t', '0198c0de-0000-7000-8000-000000000001'"


def execute(statement: str) -> Callable[[Connection], Any]:
    return lambda connection: connection.execute(text(statement))


def number_of(connection: Connection) -> Any:
    return connection.execute(text("SELECT max(number) FROM agentruns.applied_revisions")).scalar_one()


@pytest.mark.parametrize("schema", ['my "odd" Schema', "public", "information_schema", "pg_mine", "", "x" * 49, "1a"])
def test_J8_schema_name_is_refused_before_any_sql(schema: str) -> None:
    no_connection: Any = None
    for call in (migrations.upgrade, migrations.downgrade):
        with pytest.raises(InvalidOptionError) as caught:
            call(no_connection, to="base", schema=schema)
        assert caught.value.option == "schema"
    with pytest.raises(InvalidOptionError):
        migrations.sql(schema=schema)


def test_autocommit_is_refused(empty_database_url: str, run: Run) -> None:
    async def work() -> UnitOfWorkError:
        engine = create_async_engine(empty_database_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            with pytest.raises(UnitOfWorkError) as caught:
                await connection.run_sync(migrations.upgrade)
        return caught.value

    assert run(work()).reason == "autocommit"


@pytest.mark.parametrize("version", ["NULL", "'agentruns_0007'"])
def test_revision_applied_by_another_mode_is_refused(database_url: str, within: Within, version: str) -> None:
    forget = "DELETE FROM agentruns.alembic_version"
    other = f"UPDATE agentruns.alembic_version SET version_num = {version}"  # noqa: S608
    within(database_url, execute(forget if version == "NULL" else other))
    with pytest.raises(SchemaVerificationError) as caught:
        within(database_url, migrations.upgrade)
    assert (caught.value.reason, caught.value.schema) == ("already_applied", "agentruns")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("DELETE FROM agentruns.applied_revisions WHERE number = 15", "behind"),
        ("UPDATE agentruns.applied_revisions SET checksum = sha256('') WHERE number = 15", "tampered"),
        ("UPDATE agentruns.applied_revisions SET revision = 'mine' WHERE number = 15", "tampered"),
        ("ALTER TABLE agentruns.applied_revisions RENAME TO gone", "behind"),
    ],
)
def test_revision_without_its_predecessor_is_refused(
    database_url: str, within: Within, damage: str, reason: str
) -> None:
    def work(connection: Connection) -> None:
        migrations.downgrade(connection, to="15")
        connection.execute(text(damage))

    within(database_url, work)
    with pytest.raises(SchemaVerificationError) as caught:
        within(database_url, migrations.upgrade)
    assert caught.value.reason == reason


def test_changed_file_is_refused_before_any_sql(monkeypatch: pytest.MonkeyPatch) -> None:
    released = frozen.released()
    revisions = [*released["revisions"]]
    revisions[4] = {**revisions[4], "sha256": "0" * 64}
    monkeypatch.setattr(manifest, "released", lambda: {**released, "revisions": revisions})
    no_connection: Any = None
    with pytest.raises(SchemaVerificationError) as caught:
        migrations.upgrade(no_connection)
    assert (caught.value.reason, caught.value.wanted) == ("tampered", "0" * 64)
    assert caught.value.found.startswith("0005_node_results.py ")


def test_changed_file_is_refused_by_the_revision_itself(
    empty_database_url: str, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "check_files", lambda _: None)
    checksum_of = frozen._checksum_of
    monkeypatch.setattr(frozen, "_checksum_of", lambda number: "1" * 64 if number == 1 else checksum_of(number))
    with pytest.raises(SchemaVerificationError) as caught:
        within(empty_database_url, migrations.upgrade)
    assert (caught.value.reason, caught.value.wanted) == ("tampered", "1" * 64)


def test_line_ends_are_no_change(tmp_path: Any) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_bytes(b"a = 1\nb = 2\n")
    other.write_bytes(b"a = 1\r\nb = 2\r\n")
    assert frozen.file_checksum(one) == frozen.file_checksum(other)


def test_other_server_is_refused(empty_database_url: str, within: Within) -> None:
    def pretend(connection: Connection) -> None:
        with translated("agentruns"):
            statement = frozen._GUARD.replace("160000", "190000").replace("189999", "199999")
            connection.execute(text(frozen.located(statement.replace("{history}", ""), "agentruns")))

    with pytest.raises(SchemaVerificationError) as caught:
        within(empty_database_url, pretend)
    assert caught.value.reason == "unsupported_server"


def test_change_of_an_append_only_record_is_a_fault_of_ours(database_url: str, within: Within) -> None:
    def change(connection: Connection) -> None:
        with translated("agentruns"):
            connection.execute(text("DELETE FROM agentruns.run_events"))

    with pytest.raises(InvariantError) as caught:
        within(database_url, change)
    assert caught.value.reason == "append_only"


def test_other_errors_pass_unchanged(database_url: str, within: Within) -> None:
    def divide(connection: Connection) -> None:
        with translated("agentruns"):
            connection.execute(text("SELECT 1 / 0"))

    with pytest.raises(DBAPIError):
        within(database_url, divide)


#: A row for a table of some revisions; ``:run`` stands for the key of a run.
EVIDENCE = {
    16: "retention_receipts VALUES (:run, now(), now(), 1, 1, 1, sha256(''), '{}')",
    14: "tenant_limits VALUES ('t', 5, now())",
    13: "graph_definitions VALUES ('t', 'https://a', 's', 'g', '1.0.0', sha256(''), '{}', now())",
    6: "node_attempts VALUES (:run, 0, 'n', 1, gen_random_uuid(), 2)",
    2: "run_checkpoints VALUES (:run, 0, gen_random_uuid(), '[]', '{}', sha256(''), 1)",
    1: "run_events VALUES (:run, 1, gen_random_uuid(), now(), 0, 'k', sha256(''), '{}', sha256(''))",
}
GATED_RUN = """
runs (tenant_id, run_id, thread_id, invocation_id, status, revision, changed_at, lifecycle_sequence, head_sequence,
  head_digest, head_recorded_at, fencing_epoch, superstep, checkpoint_digest, scheduler_ready_at, scheduler_not_before)
SELECT :run, v.id, v.id, 'active', 1, now(), 1, 1, sha256(''), now(), 0, 0, sha256(''), now(), now()
FROM (VALUES ('0198c0de-0000-7000-8000-000000000002'::uuid)) AS v (id)
"""


def insert(row: str) -> Callable[[Connection], Any]:
    return execute("INSERT INTO agentruns." + row.replace(":run", RUN))


@pytest.mark.parametrize("number", EVIDENCE)
def test_downgrade_refuses_to_destroy_evidence(database_url: str, within: Within, number: int) -> None:
    within(database_url, insert(EVIDENCE[number]))
    below = "base" if number == 1 else str(number - 1)
    for name in (None, "agentrun", "AGENTRUNS"):
        with pytest.raises(RefusedError) as caught:
            within(database_url, partial(migrations.downgrade, to=below, destroy_evidence=name))
        assert caught.value.reason == "downgrade_destroys_evidence"
    assert within(database_url, number_of) == 16
    within(database_url, partial(migrations.downgrade, to=below, destroy_evidence="agentruns"))
    if number > 1:
        assert within(database_url, number_of) == number - 1


def test_added_column_is_evidence_where_it_is_set(database_url: str, within: Within) -> None:
    within(database_url, insert(GATED_RUN))
    with pytest.raises(RefusedError):
        within(database_url, lambda c: migrations.downgrade(c, to="11"))
    within(database_url, execute("UPDATE agentruns.runs SET scheduler_not_before = NULL"))
    within(database_url, lambda c: migrations.downgrade(c, to="7"))
    with pytest.raises(RefusedError):
        within(database_url, lambda c: migrations.downgrade(c, to="6"))
    within(database_url, lambda c: migrations.downgrade(c, to="6", destroy_evidence="agentruns"))
    within(database_url, migrations.upgrade)
    ready = "SELECT scheduler_ready_at = changed_at FROM agentruns.runs"
    assert within(database_url, lambda c: c.execute(text(ready)).scalar_one()) is True
