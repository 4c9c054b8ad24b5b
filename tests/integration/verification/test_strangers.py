"""What others made in the schema: refused on our tables, where it changes what a statement does; else a warning."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection

from agentruns.errors import SchemaVerificationError
from agentruns.store.verification import SchemaReport, verify_schema

Undone = Callable[[Callable[[Connection], Any]], Any]

NOTHING = "CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';\n"
TRIGGER = NOTHING + "CREATE TRIGGER theirs {event} FOR EACH ROW EXECUTE FUNCTION public.nothing()"
HOST = "CREATE TABLE public.orders (tenant_id text, run_id uuid);"
TO_RUNS = "FOREIGN KEY (tenant_id, run_id) REFERENCES agentruns.runs (tenant_id, run_id)"
TO_HOST = """
CREATE TABLE public.tenants (id text PRIMARY KEY);
ALTER TABLE agentruns.runs ADD CONSTRAINT theirs FOREIGN KEY (tenant_id) REFERENCES public.tenants
"""
FOREIGN_TABLE = """
CREATE FOREIGN DATA WRAPPER none;
CREATE SERVER nowhere FOREIGN DATA WRAPPER none;
CREATE FOREIGN TABLE agentruns.theirs (id integer CHECK (id > 0)) SERVER nowhere
"""
TABLE = f"""
CREATE TABLE agentruns.theirs (id integer PRIMARY KEY, tenant_id text, run_id uuid, {TO_RUNS});
CREATE RULE theirs AS ON INSERT TO agentruns.theirs DO NOTHING
"""


def changed(connection: Connection, script: str) -> None:
    for statement in filter(str.strip, script.split(";\n")):
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize(
    ("script", "findings"),
    [
        (TRIGGER.format(event="BEFORE INSERT ON agentruns.runs"), ("unexpected trigger runs.theirs",)),
        (
            TRIGGER.format(event="AFTER INSERT ON agentruns.runs").replace(
                "CREATE TRIGGER", "CREATE CONSTRAINT TRIGGER"
            ),
            ("unexpected trigger runs.theirs",),
        ),
        (
            TRIGGER.format(event="INSTEAD OF INSERT ON agentruns.run_timeline"),
            ("unexpected trigger run_timeline.theirs",),
        ),
        (
            "CREATE RULE theirs AS ON INSERT TO agentruns.run_events DO ALSO NOTHING",
            ("unexpected rule run_events.theirs",),
        ),
        (
            "ALTER TABLE agentruns.runs ADD CONSTRAINT theirs CHECK (revision < 9) NOT VALID",
            ("unexpected constraint runs.theirs",),
        ),
        (TO_HOST, ("unexpected constraint runs.theirs",)),
        (
            "ALTER TABLE agentruns.runs ADD CONSTRAINT theirs UNIQUE (tenant_id, thread_id)",
            ("unexpected constraint runs.theirs", "unexpected index runs.theirs"),
        ),
        (
            "CREATE UNIQUE INDEX theirs ON agentruns.run_waits (wait_id)",
            ("unexpected index run_waits.theirs",),
        ),
        ("ALTER TABLE agentruns.runs ADD theirs text", ("unexpected column runs.theirs",)),
    ],
)
def test_OPS_04_what_acts_on_our_tables_is_unexpected(undone: Undone, script: str, findings: tuple[str, ...]) -> None:
    def work(connection: Connection) -> SchemaVerificationError:
        changed(connection, script)
        with pytest.raises(SchemaVerificationError) as caught:
            verify_schema(connection)
        return caught.value

    error = undone(work)
    assert (error.reason, error.findings) == ("incomplete", findings)
    assert all(finding in str(error) for finding in findings)


@pytest.mark.parametrize(
    ("script", "warning"),
    [
        ("CREATE INDEX theirs ON agentruns.runs (thread_id)", "unexpected index runs.theirs"),
        ("CREATE INDEX theirs ON agentruns.runs (thread_id) WHERE revision = 1", "unexpected index runs.theirs"),
        (FOREIGN_TABLE, "unexpected foreign table theirs"),
        (TABLE, "unexpected table theirs"),
        ("CREATE TABLE agentruns.theirs (id integer) PARTITION BY LIST (id)", "unexpected partitioned table theirs"),
        ("CREATE VIEW agentruns.theirs AS SELECT run_id FROM agentruns.runs", "unexpected view theirs"),
        ("CREATE MATERIALIZED VIEW agentruns.theirs AS SELECT 1 AS one", "unexpected materialized view theirs"),
        ("CREATE SEQUENCE agentruns.theirs", "unexpected sequence theirs"),
        (
            "CREATE FUNCTION agentruns.forbid_change(integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "unexpected function forbid_change(integer)",
        ),
    ],
)
def test_OPS_04_what_stands_beside_our_tables_is_a_warning(
    undone: Undone, script: str, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    def work(connection: Connection) -> tuple[str, ...]:
        before = set(verify_schema(connection).warnings)
        changed(connection, script)
        caplog.clear()
        found: SchemaReport = verify_schema(connection)
        return tuple(line for line in found.warnings if line not in before)

    assert undone(work) == (warning,)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("agentruns.store.verification", logging.WARNING)
    assert record.getMessage() == "the schema holds objects that no revision of this release made"
    assert (vars(record)["schema"], vars(record)["warnings"]) == ("agentruns", (warning,))


def test_a_hosts_foreign_key_to_a_run_is_the_hosts_affair(undone: Undone) -> None:
    def work(connection: Connection) -> tuple[tuple[str, ...], tuple[str, ...]]:
        before = verify_schema(connection)
        changed(connection, f"{HOST}\nALTER TABLE public.orders ADD CONSTRAINT fk_run_waits_run {TO_RUNS}")
        changed(connection, "ALTER TABLE public.orders DISABLE TRIGGER ALL")
        return before.warnings, verify_schema(connection).warnings

    before, after = undone(work)
    assert before == after


def test_a_hosts_foreign_key_of_the_same_name_hides_no_disabled_trigger(undone: Undone) -> None:
    def work(connection: Connection) -> tuple[str, ...]:
        changed(connection, f"{HOST}\nALTER TABLE public.orders ADD CONSTRAINT fk_run_waits_run {TO_RUNS}")
        changed(
            connection,
            """
            UPDATE pg_trigger SET tgenabled = 'D' WHERE tgrelid = 'agentruns.runs'::regclass AND tgconstraint =
              (SELECT oid FROM pg_constraint WHERE conrelid = 'agentruns.run_waits'::regclass AND contype = 'f')
            """,
        )
        with pytest.raises(SchemaVerificationError) as caught:
            verify_schema(connection)
        return caught.value.findings

    assert undone(work) == (
        "different constraint trigger runs.fk_run_waits_run.RI_FKey_noaction_del",
        "different constraint trigger runs.fk_run_waits_run.RI_FKey_noaction_upd",
    )


def test_the_sentence_is_short_and_the_field_complete(undone: Undone) -> None:
    def work(connection: Connection) -> SchemaVerificationError:
        changed(connection, "".join(f"ALTER TABLE agentruns.runs ADD c{n:02} text;\n" for n in range(13)))
        with pytest.raises(SchemaVerificationError) as caught:
            verify_schema(connection)
        return caught.value

    error = undone(work)
    assert error.findings == tuple(f"unexpected column runs.c{n:02}" for n in range(13))
    shown = ", ".join(error.findings[:10])
    assert str(error) == (
        "objects are missing or different: restore them as the migrations made them"
        f" (reason=incomplete, schema=agentruns, {shown}, 3 more)"
    )
