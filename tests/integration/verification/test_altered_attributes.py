"""Each attribute that is compared, on one object: changed alone, it is a difference of exactly that object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection

from agentruns.errors import SchemaVerificationError
from agentruns.store.verification import verify_schema

Undone = Callable[[Callable[[Connection], Any]], Any]


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("ALTER TABLE agentruns.retention_receipts ALTER run_count TYPE bigint", "column retention_receipts.run_count"),
        ("ALTER TABLE agentruns.run_outcomes ALTER body DROP NOT NULL", "column run_outcomes.body"),
        ("ALTER TABLE agentruns.runs ALTER superstep SET NOT NULL", "column runs.superstep"),
        ("ALTER TABLE agentruns.tenant_slots ALTER run_id SET DEFAULT gen_random_uuid()", "column tenant_slots.run_id"),
        (
            "ALTER TABLE agentruns.retention_receipts ALTER row_count ADD GENERATED ALWAYS AS IDENTITY",
            "column retention_receipts.row_count",
        ),
        ("ALTER TABLE agentruns.retention_receipts SET UNLOGGED", "table retention_receipts"),
        ("ALTER TABLE agentruns.runs ENABLE ROW LEVEL SECURITY", "table runs"),
        ("ALTER TABLE agentruns.runs RESET (fillfactor)", "table runs"),
        ("ALTER TABLE agentruns.run_events SET (autovacuum_enabled = false)", "table run_events"),
        ("CREATE TABLE public.more () INHERITS (agentruns.retention_receipts)", "table retention_receipts"),
        ("ALTER VIEW agentruns.run_overview SET (security_barrier = false)", "view run_overview"),
        ("ALTER VIEW agentruns.run_events_json SET (security_invoker = false)", "view run_events_json"),
        ("ALTER VIEW agentruns.run_events_json SET (security_barrier = true)", "view run_events_json"),
    ],
)
def test_OPS_04_one_attribute_is_a_difference(undone: Undone, statement: str, finding: str) -> None:
    assert undone(lambda connection: findings(connection, statement)) == (f"different {finding}",)


def test_OPS_04_what_belongs_to_a_table_is_not_missing_beside_it(undone: Undone) -> None:
    gone = undone(lambda connection: findings(connection, "DROP TABLE agentruns.retention_receipts"))
    assert gone == ("missing table retention_receipts",)


def test_OPS_04_another_collation_of_the_same_name_is_none_of_ours(undone: Undone) -> None:
    statements = (
        "ALTER TABLE agentruns.run_quarantines DROP component CASCADE",
        'ALTER TABLE agentruns.run_quarantines ADD component text COLLATE "POSIX" NOT NULL',
    )
    assert "different column run_quarantines.component" in undone(lambda c: findings(c, *statements))


def test_OPS_04_a_generated_column_is_a_difference(undone: Undone) -> None:
    statements = (
        "ALTER TABLE agentruns.run_outcomes DROP body CASCADE",
        "ALTER TABLE agentruns.run_outcomes ADD body bytea NOT NULL GENERATED ALWAYS AS (digest) STORED",
    )
    assert "different column run_outcomes.body" in undone(lambda c: findings(c, *statements))


def test_OPS_04_a_not_null_that_nobody_validated_is_a_difference(undone: Undone, server: Any) -> None:
    if server.major < 18:
        pytest.skip("NOT NULL became a constraint with PostgreSQL 18")
    statements = (
        "ALTER TABLE agentruns.run_outcomes ALTER body DROP NOT NULL",
        "ALTER TABLE agentruns.run_outcomes ADD CONSTRAINT n NOT NULL body NOT VALID",
    )
    assert undone(lambda c: findings(c, *statements)) == ("different column run_outcomes.body",)


def test_OPS_04_a_check_that_is_not_enforced_is_a_difference(undone: Undone, server: Any) -> None:
    if server.major < 18:
        pytest.skip("NOT ENFORCED came with PostgreSQL 18")
    again = "ADD CONSTRAINT ck_run_outcomes_digest CHECK (octet_length(digest) = 32) NOT ENFORCED"
    statement = f"ALTER TABLE agentruns.run_outcomes DROP CONSTRAINT ck_run_outcomes_digest, {again}"
    assert undone(lambda c: findings(c, statement)) == ("different constraint run_outcomes.ck_run_outcomes_digest",)


def findings(connection: Connection, *statements: str) -> tuple[str, ...]:
    for statement in statements:
        connection.exec_driver_sql(statement)
    with pytest.raises(SchemaVerificationError) as caught:
        verify_schema(connection)
    assert caught.value.reason == "incomplete"
    return caught.value.findings
