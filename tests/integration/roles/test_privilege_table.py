"""The table of privileges is the specification's, and its allowlist of columns is that of the triggers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, text

from agentruns.orm import Base
from agentruns.orm.base import changeable_columns
from agentruns.store.privileges import Privilege, Role, excess, expected, missing

Within = Callable[[str, Callable[[Connection], Any]], Any]


def names(text: str) -> list[str]:
    return text.split()


#: The tables that carry a run's key.
OF_A_RUN = names(
    "agent_admissions agent_submission_keys model_invocation_revisions model_invocations node_attempts node_results"
    " outbox_attempts outbox_deliveries outbox_results run_checkpoints run_events run_outcomes run_quarantine_releases"
    " run_quarantines run_waits runs tool_invocation_revisions tool_invocations"
)
OTHERS = names(
    "applied_revisions graph_definitions outbox_destinations retention_receipts scheduler_fairness_reservations"
    " scheduler_fairness_shards tenant_limits tenant_slots"
)
OVERVIEWS = names(
    "invocation_overview node_overview outbox_overview quarantine_overview run_overview run_timeline"
    " submission_overview tenant_overview wait_overview"
)
DECODERS = names(
    "agent_admissions_json graph_definitions_json model_invocation_revisions_json model_invocations_json"
    " node_results_json outbox_deliveries_json outbox_results_json run_checkpoints_json run_events_json"
    " run_outcomes_json run_quarantines_json run_waits_json tool_invocation_revisions_json tool_invocations_json"
)
CHANGEABLE = {
    "runs": "status revision changed_at lifecycle_sequence head_sequence head_digest head_recorded_at fencing_epoch"
    " lease_attempt_id lease_acquired_at lease_renewed_at lease_expires_at quarantined_at superstep checkpoint_digest"
    " scheduler_ready_at scheduler_not_before",
    "tool_invocations": "status number",
    "model_invocations": "status number",
    "outbox_deliveries": "status attempts attempt_expires_at next_attempt_at updated_at",
    "run_waits": "status settled_sequence resolution resolution_digest",
    "scheduler_fairness_shards": "next_slot next_sequence",
    "tenant_limits": "maximum_live updated_at",
    "tenant_slots": "run_id fencing_epoch serial",
}


def on(action: str, relations: list[str]) -> set[Privilege]:
    return {Privilege("relation", name, "", action) for name in relations}


def updates(columns: dict[str, str]) -> set[Privilege]:
    return {Privilege("relation", name, column, "UPDATE") for name in columns for column in columns[name].split()}


USAGE = {Privilege("schema", "", "", "USAGE")}
EVERYTHING = on("SELECT", [*OF_A_RUN, *OTHERS, *OVERVIEWS, *DECODERS])
INSERTED = set(OF_A_RUN + OTHERS) - {"applied_revisions", "retention_receipts", "run_quarantine_releases"}
RUNTIME = USAGE | EVERYTHING | on("INSERT", sorted(INSERTED)) | updates(CHANGEABLE)
REMOVED = [*OF_A_RUN, "scheduler_fairness_reservations"]
TABLE = {
    Role.RUNTIME: RUNTIME,
    Role.OPERATOR: RUNTIME | on("INSERT", ["run_quarantine_releases"]),
    Role.READER: USAGE | on("SELECT", ["applied_revisions", *OVERVIEWS]),
    Role.EVIDENCE_READER: USAGE | EVERYTHING,
    Role.RETENTION: USAGE
    | on("SELECT", ["applied_revisions", *REMOVED])
    | on("DELETE", REMOVED)
    | on("INSERT", ["retention_receipts"])
    | updates({"runs": "thread_id", "scheduler_fairness_reservations": "slot"}),
}


@pytest.mark.parametrize("role", Role)
def test_each_role_holds_what_the_table_says(role: Role) -> None:
    assert expected(role) == TABLE[role]


def test_a_privilege_on_a_relation_covers_its_columns() -> None:
    whole, part = Privilege("relation", "runs", "", "UPDATE"), Privilege("relation", "runs", "status", "UPDATE")
    other = Privilege("relation", "runs", "status", "SELECT")
    assert [set(missing({part}, {whole})), set(excess({whole}, {part}))] == [set(), set()]
    assert [set(missing({whole}, {part})), set(excess({part}, {whole, part}))] == [{whole}, {whole}]
    assert [set(missing({other}, {whole, part})), set(excess({whole}, {other}))] == [{other}, {other}]


_REFUSED_COLUMNS = text("""
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE a.attname IS NOT NULL) AS columns
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY (t.tgattr)
WHERE n.nspname = 'agentruns' AND t.tgname LIKE 'append\\_only%' GROUP BY c.relname
""")


def test_columns_that_may_change_are_those_that_no_trigger_refuses(database_url: str, within: Within) -> None:
    rows = within(database_url, lambda connection: connection.execute(_REFUSED_COLUMNS).all())
    refused = {row.relname: row.columns for row in rows}
    tables = {table.name: table for table in Base.metadata.tables.values() if table.name != "applied_revisions"}
    assert refused == {
        name: [column.name for column in table.columns if column.name not in changeable_columns(table)]
        if changeable_columns(table)
        else None
        for name, table in tables.items()
    }
