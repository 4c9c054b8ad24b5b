"""Views for people: overviews hold no body, decoders show bodies only to whoever may read the table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, insert, text

from agentruns.migrations.frozen_views import DECODERS, OVERVIEWS
from agentruns.orm import Base

Within = Callable[[str, Callable[[Connection], Any]], Any]
Samples = dict[str, dict[str, Any]]

READER = f"agentruns_test_reader_{os.getpid()}"
AT = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
DIGEST = "sha256:" + bytes(range(32)).hex()
RUN_ID = "0198c0de-0000-7000-8000-000000000001"


@pytest.fixture
def populated_url(database_url: str, within: Within, samples: Samples) -> str:
    def populate(connection: Connection) -> None:
        for name, row in samples.items():
            connection.execute(insert(Base.metadata.tables[f"agentruns.{name}"]).values(row))

    within(database_url, populate)
    return database_url


@pytest.fixture
def reader_url(server: Any, populated_url: str, within: Within) -> Iterator[str]:
    """A database in which a role may read the overviews, and call the decoders without reading their tables."""

    def grant(connection: Connection) -> None:
        connection.execute(text(f"CREATE ROLE {READER}"))
        connection.execute(text(f"GRANT USAGE ON SCHEMA agentruns TO {READER}"))
        for name in [*OVERVIEWS, *(f"{table}_json" for table in DECODERS)]:
            connection.execute(text(f"GRANT SELECT ON agentruns.{name} TO {READER}"))

    within(populated_url, grant)
    yield populated_url
    within(populated_url, lambda connection: connection.execute(text(f"DROP OWNED BY {READER}")))
    server.execute(f"DROP ROLE {READER}")


def rows(connection: Connection, view: str, columns: str = "*") -> list[dict[str, Any]]:
    found = connection.execute(text(f"SELECT {columns} FROM agentruns.{view}"))  # noqa: S608
    return [dict(row) for row in found.mappings()]


def row(connection: Connection, view: str, columns: str = "*") -> dict[str, Any]:
    (only,) = rows(connection, view, columns)
    return only


def test_views_are_the_specified_ones(database_url: str, within: Within) -> None:
    def views(connection: Connection) -> Any:
        statement = "SELECT relname FROM pg_class WHERE relnamespace = 'agentruns'::regnamespace AND relkind = 'v'"
        return set(connection.execute(text(statement)).scalars())

    assert within(database_url, views) == {
        *("run_overview", "run_timeline", "node_overview", "invocation_overview", "wait_overview", "outbox_overview"),
        *("quarantine_overview", "submission_overview", "tenant_overview", "run_events_json", "run_checkpoints_json"),
        *("run_outcomes_json", "node_results_json", "tool_invocations_json", "tool_invocation_revisions_json"),
        *("model_invocations_json", "model_invocation_revisions_json", "run_waits_json", "outbox_deliveries_json"),
        *("outbox_results_json", "run_quarantines_json", "graph_definitions_json", "agent_admissions_json"),
    }


def test_overviews_have_no_column_that_could_hold_a_body(database_url: str, within: Within) -> None:
    def types(connection: Connection) -> Any:
        statement = """
        SELECT DISTINCT format_type(a.atttypid, NULL) FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'agentruns'::regnamespace AND c.relkind = 'v' AND c.relname NOT LIKE '%\\_json'
        """
        return set(connection.execute(text(statement)).scalars())

    assert within(database_url, types) == {
        "bigint",
        "integer",
        "interval",
        "smallint",
        "text",
        "timestamp with time zone",
        "uuid",
    }


def test_reader_without_any_table_reads_overviews_and_no_decoder(reader_url: str, within: Within) -> None:
    def read(connection: Connection) -> tuple[list[int], list[bool]]:
        connection.execute(text(f"SET LOCAL ROLE {READER}"))
        counts = [len(rows(connection, name)) for name in OVERVIEWS]
        refused = []
        for table in DECODERS:
            with pytest.raises(Exception, match="permission denied for table"), connection.begin_nested():
                rows(connection, f"{table}_json")
            refused.append(True)
        return counts, refused

    counts, refused = within(reader_url, read)
    assert dict(zip(OVERVIEWS, counts, strict=True)) == {**dict.fromkeys(OVERVIEWS, 1), "invocation_overview": 2}
    assert len(refused) == 14


def test_decoders_show_bodies_as_json_that_may_hold_what_no_text_may(populated_url: str, within: Within) -> None:
    def read(connection: Connection) -> dict[str, Any]:
        return {table: row(connection, f"{table}_json", "document::text AS document") for table in DECODERS}

    nothing = {"tool_invocation_revisions", "model_invocation_revisions"}  # their last change has no body
    assert within(populated_url, read) == {
        table: {"document": None if table in nothing else '{"text":"\\u0000"}'} for table in DECODERS
    }


def test_run_overview_says_where_a_run_stands(populated_url: str, within: Within) -> None:
    found = within(populated_url, lambda connection: row(connection, "run_overview"))
    ages = [found.pop(name) for name in ("run_age", "status_age", "head_age")]
    assert all(age > timedelta(days=1) for age in ages)
    assert {**found, "run_id": str(found["run_id"])} == {
        "tenant_id": "tenant-a",
        "run_id": RUN_ID,
        "status": "active",
        "revision": 1,
        "superstep": 0,
        "events": 1,
        "agent_name": "a",
        "agent_version": "1.0.0",
        "graph_name": "g",
        "graph_version": "1.0.0",
        "graph_definition_digest": DIGEST,
        "lease_epoch": 1,
        "lease_expires_at": None,
        "next_wake_up_at": AT,
        "agent_deadline_at": AT + timedelta(minutes=1),
        "outstanding_waits": 1,
        "quarantined_at": None,
        "admitted_at": AT,
        "changed_at": AT,
        "head_recorded_at": AT,
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("scheduler_not_before = changed_at + interval '1 hour'", AT + timedelta(hours=1)),
        ("status = 'waiting', scheduler_ready_at = NULL", AT + timedelta(minutes=1)),
        ("status = 'succeeded', scheduler_ready_at = NULL", None),
    ],
)
def test_run_overview_names_the_next_wake_up(populated_url: str, within: Within, change: str, expected: Any) -> None:
    within(populated_url, lambda connection: connection.execute(text(f"UPDATE agentruns.runs SET {change}")))  # noqa: S608
    assert within(populated_url, lambda connection: row(connection, "run_overview"))["next_wake_up_at"] == expected


def test_node_overview_joins_start_and_end(populated_url: str, within: Within) -> None:
    found = within(populated_url, lambda connection: row(connection, "node_overview"))
    shown = ("node_id", "attempt", "epoch", "started_at", "status", "ended_at", "bytes", "digest")
    assert [found[name] for name in shown] == ["first", 1, 0, AT, "failed", AT, 17, DIGEST]


def test_invocation_overview_holds_tools_and_models(populated_url: str, within: Within) -> None:
    columns = "kind, name, version, risk, status, number, attempts, bytes"
    found = within(populated_url, lambda connection: rows(connection, "invocation_overview", columns))
    assert sorted(tuple(each.values()) for each in found) == [
        ("model", "m", "1.0.0", None, "executing", 1, 1, 17),
        ("tool", "t", "1.0.0", "read_only", "executing", 1, 1, 17),
    ]


def test_tenant_overview_counts(populated_url: str, within: Within) -> None:
    lease = (
        "lease_attempt_id = run_id, lease_acquired_at = clock_timestamp(), lease_renewed_at = clock_timestamp(),"
        " lease_expires_at = clock_timestamp() + interval '1 hour'"
    )
    idle = within(populated_url, lambda connection: row(connection, "tenant_overview"))
    within(populated_url, lambda connection: connection.execute(text(f"UPDATE agentruns.runs SET {lease}")))  # noqa: S608
    leased = within(populated_url, lambda connection: row(connection, "tenant_overview"))
    assert idle == {
        "tenant_id": "tenant-a",
        "active": 1,
        **dict.fromkeys(("waiting", "cancellation_requested", "succeeded", "failed", "cancelled", "quarantined"), 0),
        "oldest_due_at": AT,
        "live_leases": 0,
        "maximum_live": 5,
        "unknown_tools": 0,
        "due_deliveries": 1,
    }
    assert leased == {**idle, "oldest_due_at": None, "live_leases": 1}
