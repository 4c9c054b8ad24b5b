"""A run goes whole, nothing else changes, and the receipt says exactly what went."""

# ruff: noqa: S608 - the names in these statements are those of our own models

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from sqlalchemy import LargeBinary, Table, text
from sqlalchemy.exc import DBAPIError

from agentruns.domain.canonical import JsonTree, canonical_bytes
from agentruns.domain.digests import Digest, DigestPurpose, digest_body
from agentruns.errors import SchemaVerificationError
from agentruns.operations.retention import RetentionBatch, RetentionPolicy, remove_runs, retention_receipts
from agentruns.orm import Base
from agentruns.store.retention import Retention
from agentruns.store.statements.retention import TABLES
from agentruns.store.transient import sqlstate_of
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.testing.samples import TENANT

HOUR = timedelta(hours=1)
POLICY = RetentionPolicy(keep_succeeded=HOUR, keep_failed=HOUR, keep_cancelled=HOUR, retry_guarantee=HOUR)
ALL: dict[str, Table] = {table.name: table for table in Base.metadata.sorted_tables}


def bodies_of(table: Table) -> tuple[str, ...]:
    """Name the columns that hold bytes and no digest."""
    bytes_of = [column for column in table.columns if isinstance(column.type, LargeBinary)]
    return tuple(column.name for column in bytes_of if not column.name.endswith("digest"))


def test_OPS_09_no_table_of_a_run_is_outside_the_operation() -> None:
    carrying = {name for name, table in ALL.items() if {"tenant_id", "run_id"} <= set(table.columns.keys())}
    assert TABLES.keys() == carrying - {"tenant_slots"}


def test_every_body_is_counted() -> None:
    assert {name: set(columns) for name, columns in TABLES.items()} == {
        name: set(bodies_of(ALL[name])) for name in TABLES
    }


def test_no_row_of_the_run_is_left_and_no_other_row_is_touched(archive: Any, sample: Any) -> None:
    """Under a tenant's slot, too, which is no part of the run."""
    gone, stays = sample(), sample(status="active")
    archive.write(stays, sample(tenant="other"))
    archive.execute(
        "INSERT INTO agentruns.tenant_slots (tenant_id, slot, run_id, fencing_epoch, serial)"
        " VALUES ('t', 0, :run, 1, 1)",
        run=gone.run_id,
    )
    before = archive.everything()
    archive.write(gone)
    assert {name for name, rows in archive.everything().items() if rows != before[name]} == set(TABLES)
    assert archive.removed() == [1]
    after = archive.everything()
    assert len(after.pop("retention_receipts")) == 1
    assert after == before


def test_the_receipt_counts_exactly_what_went(archive: Any, sample: Any) -> None:
    samples = [sample(status=status) for status in ("succeeded", "failed", "cancelled")]
    archive.write(*samples)
    (step,) = archive.steps()
    (receipt,) = archive.on_connection(lambda connection: list(retention_receipts(connection, TENANT)))
    rows = [(name, row) for each in samples for name, row in each.rows().items()]
    sizes = [len(row.get(column) or b"") for name, row in rows for column in bodies_of(ALL[name])]
    assert (receipt.run_count, receipt.row_count, receipt.byte_count) == (3, len(rows), sum(sizes))
    assert (step.run_count, step.row_count, step.byte_count) == (3, len(rows), sum(sizes))
    listed: JsonTree = [
        {"run_id": each.run_id, "admission_digest": str(Digest(each.digest))}
        for each in sorted(samples, key=lambda each: each.run_id)
    ]
    assert receipt.runs_digest == digest_body(DigestPurpose.RETENTION_RECEIPT, canonical_bytes(listed))
    assert receipt.removed_at.to_datetime() - receipt.cutoff_at.to_datetime() == HOUR
    assert receipt.policy == POLICY.canonical
    assert receipt.tenant_id == TENANT


def test_a_run_older_than_admissions_goes_too(archive: Any, sample: Any) -> None:
    each = sample()
    archive.write(each, bare=True)
    assert archive.removed() == [1]
    (receipt,) = archive.on_connection(lambda connection: list(retention_receipts(connection, TENANT)))
    listed = canonical_bytes([{"run_id": each.run_id, "admission_digest": None}])
    assert receipt.runs_digest == digest_body(DigestPurpose.RETENTION_RECEIPT, listed)


def test_where_nothing_goes_there_is_no_receipt(archive: Any, sample: Any) -> None:
    archive.write(sample(status="active"))
    before = archive.everything()
    assert archive.steps() == []
    assert archive.everything() == before
    assert "retention_receipts" not in before


def test_the_shortest_and_the_longest_keep_stand_in_the_receipts(archive: Any, sample: Any) -> None:
    policy = evolve(POLICY, keep_failed=3 * HOUR, keep_cancelled=5 * HOUR, include_quarantined=True)
    long_ago = sample().since - 100 * HOUR
    archive.write(sample(since=long_ago), sample(since=long_ago, quarantined_at=long_ago))
    assert archive.removed(policy) == [1, 1]
    receipts = archive.on_connection(lambda connection: list(retention_receipts(connection, TENANT)))
    spans = [each.removed_at.to_datetime() - each.cutoff_at.to_datetime() for each in receipts]
    assert spans == [HOUR, 5 * HOUR]


def test_a_batch_has_at_most_a_hundred_runs(archive: Any, sample: Any) -> None:
    first = sample().since - 10 * HOUR
    samples = [sample(since=first + timedelta(seconds=number)) for number in range(201)]
    archive.write(*samples, bare=True)
    seen: list[tuple[int, set[str]]] = []

    def work(connection: Any) -> None:
        for step in remove_runs(connection, POLICY, tenant_id=TENANT):
            assert isinstance(step, RetentionBatch)
            assert not connection.in_transaction()
            rows = connection.execute(text("SELECT run_id FROM agentruns.runs")).scalars()
            seen.append((step.run_count, {str(row) for row in rows}))
            connection.rollback()

    archive.on_connection(work)
    ids = [each.run_id for each in samples]
    assert seen == [(100, set(ids[100:])), (100, set(ids[200:])), (1, set())]


def test_a_batch_has_at_most_fifty_thousand_events_and_one_run_always(archive: Any, sample: Any) -> None:
    first = sample().since - 10 * HOUR
    counts = [20_000, 20_000, 10_000, 1, 49_999, 1, 60_000, 70_000, 5, 49_996]
    archive.write(
        *(sample(since=first + timedelta(seconds=place), events=count) for place, count in enumerate(counts)),
        bare=True,
    )
    assert archive.removed() == [3, 2, 1, 1, 1, 1, 1]


def test_runs_of_one_instant_all_go(archive: Any, sample: Any) -> None:
    since = sample().since
    archive.write(*(sample(since=since) for _ in range(150)), bare=True)
    assert archive.removed() == [100, 50]


def test_retention_works_under_its_role_and_may_do_nothing_else(archive: Any, sample: Any, role: str) -> None:
    archive.write(sample(), sample(quarantined_at=sample().since - HOUR))
    policy = evolve(POLICY, include_quarantined=True)
    steps = archive.on_connection(lambda connection: list(remove_runs(connection, policy, tenant_id=TENANT)), role=role)
    assert [step.run_count for step in steps] == [1, 1]
    assert set(archive.everything()) == {"applied_revisions", "retention_receipts"}


def test_inside_its_transaction_nothing_but_delete_passes(archive: Any, sample: Any, role: str) -> None:
    archive.write(sample())
    before = archive.everything()

    def state(connection: Any, statement: str) -> str:
        with connection.begin() as transaction:
            Retention(UnitOfWork(connection)).permit("agentruns")
            with pytest.raises(DBAPIError) as refused:
                connection.execute(text(statement))
            transaction.rollback()
        return sqlstate_of(refused.value)

    def work(connection: Any) -> list[str]:
        connection.execution_options(isolation_level="READ COMMITTED")
        return [
            state(connection, f"UPDATE agentruns.runs SET {column} = {column}") for column in ("thread_id", "status")
        ]

    # The one column that the role may name, to lock rows, is refused by the trigger; the others by the grants.
    assert archive.on_connection(work, role=role) == ["AR005", "42501"]

    def as_owner(connection: Any) -> set[str]:
        connection.execution_options(isolation_level="READ COMMITTED")
        updates = [f"UPDATE agentruns.{name} SET run_id = run_id" for name in TABLES]
        return {state(connection, each) for each in (*updates, *(f"TRUNCATE agentruns.{n} CASCADE" for n in TABLES))}

    assert archive.on_connection(as_owner) == {"AR005"}
    assert archive.everything() == before


def test_after_a_removal_the_connection_may_delete_as_little_as_before(archive: Any, sample: Any) -> None:
    archive.write(sample())

    def work(connection: Any) -> str:
        assert len(list(remove_runs(connection, POLICY, tenant_id=TENANT))) == 1
        with pytest.raises(DBAPIError) as refused:
            connection.execute(text("DELETE FROM agentruns.retention_receipts"))
        return sqlstate_of(refused.value)

    assert archive.on_connection(work) == "AR005"


def test_a_schema_with_another_table_of_runs_is_refused(archive: Any, sample: Any) -> None:
    archive.write(sample())
    archive.execute("CREATE TABLE agentruns.run_notes (LIKE agentruns.run_outcomes)")
    assert len(archive.plans()) == 1
    archive.execute(
        "CREATE TRIGGER append_only BEFORE DELETE ON agentruns.run_notes FOR EACH STATEMENT"
        " EXECUTE FUNCTION agentruns.forbid_change()"
    )
    before = archive.everything()
    for refused in (archive.steps, archive.plans):
        with pytest.raises(SchemaVerificationError) as caught:
            refused()
        assert (caught.value.reason, caught.value.findings) == ("ahead", ("run_notes",))
    assert archive.everything() == before


def test_a_schema_that_lacks_a_table_or_everything_is_refused(archive: Any, empty_database_url: str) -> None:
    archive.execute("DROP TABLE agentruns.run_outcomes CASCADE")
    with pytest.raises(SchemaVerificationError) as caught:
        archive.steps()
    assert (caught.value.reason, caught.value.findings) == ("incomplete", ("run_outcomes",))
    with pytest.raises(SchemaVerificationError) as caught:
        evolve(archive, url=empty_database_url).steps()
    assert caught.value.reason == "not_migrated"
