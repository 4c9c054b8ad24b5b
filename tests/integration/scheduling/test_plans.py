"""What workers ask again and again is read from an index, in its order: no table is scanned and nothing is sorted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Connection, Select

from agentruns.domain.graph.returns import Finish
from agentruns.store.statements import backlog, due, gates, leases, ready
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]

GRAPH = chain(a=lambda _context: Finish({}))
READ = {"runs", "run_waits"}
#: What is asked, and the index that it is read from.
ASKED: dict[str, tuple[Select[Any], str]] = {
    "claim": (leases.claim_ready(), "ix_runs_runnable"),
    "named tenants": (ready.ready_among(), "ix_runs_runnable"),
    "all tenants": (ready.ready_tenants(), "ix_runs_runnable"),
    "listed runs": (ready.ready_runs(), "ix_runs_runnable"),
    "tenants with deadlines": (due.due_tenants(), "ix_runs_deadline"),
    "tenants with timers": (due.due_tenants(), "ix_run_waits_due"),
    "tenants with interrupts": (due.due_tenants(), "ix_run_waits_expiry"),
    "gates": (gates.next_gate(), "ix_runs_runnable"),
    "gates of all": (gates.next_gate_of_all(), "ix_runs_runnable"),
    "backlog": (backlog.backlog(), "ix_runs_runnable"),
    "isolated runs": (backlog.backlog(), "ix_runs_quarantined"),
    "backlog of all": (backlog.backlog_of_all(), "ix_runs_runnable"),
    "isolated runs of all": (backlog.backlog_of_all(), "ix_runs_quarantined"),
    "deadlines": (due.overdue_runs(), "ix_runs_deadline"),
    "named tenants with deadlines": (due.due_among(), "ix_runs_deadline"),
    "named tenants with timers": (due.due_among(), "ix_run_waits_due"),
    "named tenants with interrupts": (due.due_among(), "ix_run_waits_expiry"),
    "timers": (due.due_waits("due_at"), "ix_run_waits_due"),
    "expired interrupts": (due.due_waits("expires_at"), "ix_run_waits_expiry"),
}
#: Copies of a run: most of them have ended, and every hundredth is ready.
HISTORY = """
INSERT INTO agentruns.runs SELECT (jsonb_populate_record(r, jsonb_build_object(
  'run_id', '01890000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'), 'tenant_id', 't' || n % 50,
  'agent_deadline_at', r.changed_at + interval '1 d',
  'status', CASE WHEN n % 100 = 0 THEN 'active' ELSE 'succeeded' END,
  'scheduler_ready_at', CASE WHEN n % 100 = 0 THEN r.scheduler_ready_at END))).*
FROM agentruns.runs AS r, generate_series(1, 5000) AS s (n)
"""
#: A wait of each run: every fiftieth is outstanding, in turn a timer and an interrupt.
WAITS = """
INSERT INTO agentruns.run_waits
  (tenant_id, run_id, wait_id, sequence, kind, registration, digest, due_at, expires_at, status, settled_sequence)
SELECT tenant_id, run_id, run_id, 2, CASE WHEN is_timer THEN 'sleep' ELSE 'approval' END, '{}', sha256('{}'),
  CASE WHEN is_timer THEN changed_at END, CASE WHEN NOT is_timer THEN changed_at END,
  CASE WHEN is_open THEN 'outstanding' ELSE 'abandoned' END, CASE WHEN NOT is_open THEN 3 END
FROM (SELECT r.*, n % 2 = 0 AS is_timer, n % 50 < 2 AS is_open
      FROM (SELECT *, row_number() OVER () AS n FROM agentruns.runs) AS r) AS each
"""


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


def fed_by(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the nodes whose rows reach a node: not the steps of the statement that are planned for themselves."""
    yield plan
    for child in plan.get("Plans", ()):
        if child["Parent Relationship"] not in ("InitPlan", "SubPlan"):
            yield from fed_by(child)


def planned(connection: Connection, statement: Select[Any]) -> list[dict[str, Any]]:
    """Plan a statement as it is planned once for all values."""
    sql = str(statement.compile(dialect=connection.dialect))
    values = ", ".join(["NULL"] * max(int(number) for number in re.findall(r"\$(\d+)", sql)))
    connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
    connection.exec_driver_sql(f"PREPARE asked AS {sql}")
    found = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({values})").scalar_one()
    connection.exec_driver_sql("DEALLOCATE asked")
    return list(nodes_of(found[0]["Plan"]))


def missed(nodes: list[dict[str, Any]], index: str) -> list[str]:
    """Name what a plan does that it should not: another way than the index, a scan, a sort of what the index gives."""
    found = [] if index in {node.get("Index Name") for node in nodes} else [node["Node Type"] for node in nodes]
    found += [
        f"scans {node['Relation Name']}"
        for node in nodes
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in READ
    ]
    sorts = [node for node in nodes if node["Node Type"] in ("Sort", "Incremental Sort")]
    return found + ["sorts" for node in sorts if index in {each.get("Index Name") for each in fed_by(node)}]


def test_what_is_asked_again_and_again_is_read_from_an_index_in_its_order(
    in_world: InWorld, within: Callable[..., Any]
) -> None:
    async def work(world: DriveWorld) -> None:
        await world.submitted()
        await world.rows(HISTORY)
        await world.rows(WAITS)
        await world.rows("ANALYZE")
        urls.append(world.url)

    def look(connection: Connection) -> dict[str, list[str]]:
        return {name: missed(planned(connection, asked), index) for name, (asked, index) in ASKED.items()}

    urls: list[str] = []
    in_world(work, GRAPH)
    assert within(urls[0], look) == {name: [] for name in ASKED}
