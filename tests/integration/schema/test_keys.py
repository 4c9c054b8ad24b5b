"""Keys begin with their tenant, and what changes often stands in no index."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, text

from agentruns.store.verification.catalogue import read_catalogue

Within = Callable[[str, Callable[[Connection], Any]], Any]

WITHOUT_TENANT = {"applied_revisions", "scheduler_fairness_shards", "scheduler_fairness_reservations"}
KEYS = """
SELECT c.relname, k.conname, k.contype::text AS contype,
  (SELECT a.attname FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attnum = k.conkey[1]) AS first,
  (SELECT a.attname FROM pg_attribute AS a WHERE a.attrelid = k.confrelid AND a.attnum = k.confkey[1]) AS referred,
  concat(k.confupdtype, k.confdeltype, k.confmatchtype) AS actions, k.condeferrable
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid
WHERE k.connamespace = 'agentruns'::regnamespace AND k.contype IN ('p', 'u', 'f') AND c.relname <> 'alembic_version'
"""
#: Of ``runs``: head, superstep, checkpoint digest and lease, whose changes must stay HOT.
HOT = {
    "head_sequence",
    "head_digest",
    "head_recorded_at",
    "superstep",
    "checkpoint_digest",
    "fencing_epoch",
    "lease_attempt_id",
    "lease_acquired_at",
    "lease_renewed_at",
    "lease_expires_at",
}


def keys(connection: Connection) -> list[Any]:
    return list(connection.execute(text(KEYS)))


def test_DB_04_every_key_of_a_tenants_table_begins_with_the_tenant(database_url: str, within: Within) -> None:
    found = within(database_url, keys)
    assert {key.conname for key in found if key.first != "tenant_id"} == {
        "pk_applied_revisions",
        "uq_applied_revisions_revision",
        "pk_scheduler_fairness_shards",
        "pk_scheduler_fairness_reservations",
        "uq_scheduler_fairness_reservations_sequence",
    }
    assert {key.relname for key in found if key.first != "tenant_id"} == WITHOUT_TENANT
    assert {key.referred for key in found if key.contype == "f"} == {"tenant_id"}


def test_DB_04_every_index_of_a_tenants_table_begins_with_the_tenant(database_url: str, within: Within) -> None:
    indexes = within(database_url, lambda connection: read_catalogue(connection, schema="agentruns"))["index"]
    others = {name.partition(".")[0] for name, text in indexes.items() if "USING btree (tenant_id" not in text}
    assert others == WITHOUT_TENANT


def test_foreign_keys_are_the_specified_ones_and_plain(database_url: str, within: Within) -> None:
    found = [key for key in within(database_url, keys) if key.contype == "f"]
    assert {key.conname for key in found} == {
        "fk_agent_admissions_run",
        "fk_agent_submission_keys_admission",
        "fk_model_invocation_revisions_invocation",
        "fk_model_invocations_run",
        "fk_outbox_attempts_delivery",
        "fk_outbox_deliveries_run",
        "fk_outbox_results_attempt",
        "fk_run_outcomes_run",
        "fk_run_quarantine_releases_quarantine",
        "fk_run_quarantines_run",
        "fk_run_waits_run",
        "fk_tool_invocation_revisions_invocation",
        "fk_tool_invocations_run",
    }
    assert {(key.actions, key.condeferrable) for key in found} == {("aas", False)}


def test_L4_DB_05_no_index_of_runs_knows_what_every_superstep_changes(database_url: str, within: Within) -> None:
    indexes = within(database_url, lambda connection: read_catalogue(connection, schema="agentruns"))["index"]
    of_runs = {name: text for name, text in indexes.items() if name.startswith("runs.")}
    assert set(of_runs) == {
        "runs.ix_runs_deadline",
        "runs.ix_runs_live",
        "runs.ix_runs_quarantined",
        "runs.ix_runs_runnable",
        "runs.ix_runs_terminal",
        "runs.pk_runs",
    }
    assert HOT.isdisjoint(re.findall(r"\w+", " ".join(of_runs.values())))


def test_J7_counters_are_64_bits_wide(database_url: str, within: Within) -> None:
    columns = within(database_url, lambda connection: read_catalogue(connection, schema="agentruns"))["column"]
    small = {
        name
        for name, text in columns.items()
        if text.startswith(("smallint", "integer")) and not name.startswith("applied_revisions.")
    }
    assert small == {
        "node_attempts.attempt",
        "node_results.attempt",
        "outbox_attempts.attempt",
        "outbox_deliveries.attempts",
        "outbox_results.attempt",
        "retention_receipts.run_count",
        "scheduler_fairness_reservations.slot",
        "scheduler_fairness_shards.cycle_length",
        "scheduler_fairness_shards.next_slot",
        "tenant_limits.maximum_live",
        "tenant_slots.slot",
    }


def test_types_are_the_few_that_are_allowed(database_url: str, within: Within) -> None:
    columns = within(database_url, lambda connection: read_catalogue(connection, schema="agentruns"))["column"]
    assert {text.removesuffix(" NOT NULL") for text in columns.values()} == {
        "bigint",
        "bytea",
        "integer",
        "smallint",
        "text COLLATE C",
        "timestamp with time zone",
        "uuid",
    }
