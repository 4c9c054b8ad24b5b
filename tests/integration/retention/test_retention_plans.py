"""Removing a batch reads what it removes through indexes, however much history there is (L2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from agentruns.operations.retention import RetentionPolicy, retention_receipts
from agentruns.store.retention import FIRST, LAST, Retention
from agentruns.store.statements import retention as statements
from agentruns.store.statements.retention_reads import PAGE, Cause
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.testing.samples import TENANT

HOUR = timedelta(hours=1)
POLICY = RetentionPolicy(keep_succeeded=HOUR, keep_failed=2 * HOUR, keep_cancelled=HOUR, retry_guarantee=HOUR)
TERMS = POLICY.terms_for(TENANT)
#: Through which index each table finds the rows of a run: its primary key, where nothing else is said.
INDEXES = {name: f"pk_{name}" for name in statements.TABLES}
INDEXES["agent_submission_keys"] = "uq_agent_submission_keys_origin"
VICTIMS: dict[Cause, str] = {"ended": "ix_runs_terminal", "isolated": "ix_runs_quarantined"}
COPY = """
INSERT INTO agentruns.{name} SELECT (jsonb_populate_record(t, jsonb_build_object('run_id', i.id, {changes}))).*
FROM agentruns.{name} AS t, ids AS i{more} WHERE t.run_id = :run_id
"""
CHANGES = {
    "runs": "'changed_at', t.changed_at - i.n * interval '1 s'",
    "run_events": "'sequence', s.n",
    "agent_submission_keys": "'key_digest', sha256(i.id::text::bytea)",
}
IDS = """
CREATE TEMPORARY TABLE ids ON COMMIT DROP AS
SELECT n, ('01890000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id FROM generate_series(1, 2000) AS s (n)
"""


@pytest.fixture
def history(archive: Any, sample: Any) -> Any:
    """Thousands of runs of ten events, with a row in each other table."""
    one = sample(events=10)
    archive.write(one, sample(status="waiting", quarantined_at=one.since))

    def work(connection: Connection) -> None:
        connection.execute(text(IDS))
        for name in statements.TABLES:
            more = ", generate_series(1, 10) AS s (n)" if name == "run_events" else ""
            changes = CHANGES.get(name, "'tenant_id', t.tenant_id")
            connection.execute(text(COPY.format(name=name, changes=changes, more=more)), {"run_id": one.run_id})

    archive.transaction(work)
    archive.execute("ANALYZE")
    return archive


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


def generic_plan(connection: Connection, cause: Cause) -> dict[str, Any]:
    """Plan the statement as it is planned once for all values."""
    sent: list[str] = []
    event.listen(connection, "before_cursor_execute", lambda *called: sent.append(called[2]))
    with connection.begin() as transaction:
        Retention(UnitOfWork(connection)).permit("agentruns")
        Retention(UnitOfWork(connection)).remove(TERMS, cause, after=FIRST, until=LAST)
        transaction.rollback()
    statement = sent[-1]
    values = ", ".join(["NULL"] * max(int(number) for number in re.findall(r"\$(\d+)", statement)))
    with connection.begin():
        connection.exec_driver_sql(f"PREPARE removal AS {statement}")
        found = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) EXECUTE removal ({values})").scalar_one()
    plan: dict[str, Any] = found[0]["Plan"]
    return plan


@pytest.mark.parametrize("cause", ["ended", "isolated"])
@pytest.mark.parametrize("settings", ["a store's", "an application's"])
def test_L2_no_table_of_a_run_is_read_but_through_its_index(history: Any, cause: Cause, settings: str) -> None:
    def work(connection: Connection) -> dict[str, Any]:
        connection.execution_options(isolation_level="READ COMMITTED")
        if settings == "an application's":
            with connection.begin():
                connection.execute(text("SET enable_seqscan = on"))
        return generic_plan(connection, cause)

    nodes = list(nodes_of(history.on_connection(work)))
    deletes = {node["Relation Name"]: node for node in nodes if node.get("Operation") == "Delete"}
    assert deletes.keys() == statements.TABLES.keys()
    for name, delete in deletes.items():
        reads = [node for node in nodes_of(delete) if node.get("Relation Name") == name and node is not delete]
        assert [node.get("Index Name") for node in reads] == [INDEXES[name]]
        assert ["run_id" in node["Index Cond"] for node in reads] == [True]
    assert "Seq Scan" not in {node["Node Type"] for node in nodes}
    (locked,) = [node for node in nodes if node.get("Subplan Name") == "CTE locked"]
    (victims,) = [node for node in nodes_of(locked) if node.get("Relation Name") == "runs"]
    assert victims["Index Name"] == VICTIMS[cause]
    assert "Sort" not in {node["Node Type"] for node in nodes_of(locked)}


def test_what_is_read_page_by_page_is_read_to_its_end(archive: Any, sample: Any) -> None:
    """Also where the last page is full."""
    one = sample()
    archive.write(one, bare=True)
    copies = COPY.format(name="runs", changes="'tenant_id', t.tenant_id", more="")
    receipt = """INSERT INTO agentruns.retention_receipts SELECT :tenant, id, now(), now(), 1, 1, 1, sha256(''), '{}'
        FROM ids"""

    def work(connection: Connection) -> None:
        connection.execute(text(IDS.replace("2000", str(2 * PAGE))))
        connection.execute(text(copies), {"run_id": one.run_id})
        connection.execute(text(receipt), {"tenant": TENANT.text})

    archive.transaction(work)
    archive.execute("DELETE FROM agentruns.runs WHERE run_id = :run_id", run_id=one.run_id)
    (plan,) = archive.plans()
    assert (plan.succeeded, plan.event_count) == (2 * PAGE, 2 * PAGE)
    receipts = archive.on_connection(lambda connection: list(retention_receipts(connection, TENANT)))
    ids = [receipt.receipt_id.text for receipt in receipts]
    assert ids == sorted(set(ids))
    assert len(ids) == 2 * PAGE
