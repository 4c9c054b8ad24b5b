"""OPS-5: what a role does not hold PostgreSQL refuses, whatever is tried; what it holds passes."""

# ruff: noqa: S608 - the names in these statements are those of our own models

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Table, make_url

from agentruns.orm import Base
from agentruns.store.privileges import Privilege, Role, expected, missing
from agentruns.store.released import released_catalogue

TABLES = list(Base.metadata.tables.values())
DIALECT = make_url("postgresql+asyncpg://").get_dialect()()
VIEWS = sorted(released_catalogue("agentruns")["view"])
#: Where everybody may create, so that a refusal is about our tables alone.
SCRATCH = """
CREATE SCHEMA scratch; GRANT ALL ON SCHEMA scratch TO PUBLIC;
CREATE FUNCTION scratch.fire() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE SCHEMA elsewhere; CREATE TABLE elsewhere.secret (x int)
"""
#: Alone it permits nothing: without the privilege PostgreSQL refuses before the trigger is asked.
RETENTION = "SET LOCAL agentruns.retention = 'agentruns'"
DENIED = "42501"


async def connected(url: str) -> asyncpg.Connection[Any]:
    target = make_url(url)
    host, port = str(target.query["host"]), int(str(target.query["port"]))
    return await asyncpg.connect(host=host, port=port, user=target.username, database=target.database)


def answers(url: str, statements: Iterable[str]) -> dict[str, str]:
    """Try each statement on a connection of its role and undo it; an answer is an SQLSTATE, empty where it passed."""

    async def attempt() -> dict[str, str]:
        connection = await connected(url)
        found = {}
        for statement in statements:
            try:
                await connection.execute(f"BEGIN; {RETENTION}; {statement}")
                found[statement] = ""
            except asyncpg.PostgresError as error:
                found[statement] = str(error.sqlstate)
            await connection.execute("ROLLBACK")
        await connection.close()
        return found

    return asyncio.run(attempt())


@pytest.fixture(scope="module")
def prepared(granted: Any) -> Any:
    async def prepare() -> None:
        connection = await connected(granted.url)
        await connection.execute(SCRATCH)
        await connection.close()

    asyncio.run(prepare())
    return granted


def uses_of(table: Table) -> Iterator[tuple[str, Privilege]]:
    """Use each privilege that a table or one of its columns has, changing no row."""
    name = f"agentruns.{table.name}"
    for column in [column.name for column in table.columns]:
        for action, statement in (
            ("SELECT", f"SELECT {column} FROM {name} WHERE false"),
            ("INSERT", f"INSERT INTO {name} ({column}) SELECT NULL WHERE false"),
            ("UPDATE", f"UPDATE {name} SET {column} = NULL WHERE false"),
        ):
            yield statement, Privilege("relation", table.name, column, action)
    keys = table.primary_key.columns.values()
    key = ", ".join(column.name for column in keys)
    definition = ", ".join(f"{column.name} {column.type.compile(DIALECT)}" for column in keys)
    for action, statement in (
        ("SELECT", f"SELECT FROM {name} WHERE false"),
        ("SELECT", f"COPY {name} TO STDOUT"),
        ("DELETE", f"DELETE FROM {name} WHERE false"),
        ("TRUNCATE", f"TRUNCATE {name} CASCADE"),
        ("REFERENCES", f"CREATE TABLE scratch.child ({definition}, FOREIGN KEY ({key}) REFERENCES {name})"),
        ("TRIGGER", f"CREATE TRIGGER fired BEFORE INSERT ON {name} EXECUTE FUNCTION scratch.fire()"),
        ("MAINTAIN", f"REINDEX TABLE {name}"),
    ):
        yield statement, Privilege("relation", table.name, "", action)


USES = dict(pair for table in TABLES for pair in uses_of(table))


def wanted(role: Role, statement: str, privilege: Privilege) -> str:
    if missing({privilege}, expected(role)):
        return DENIED
    # The two columns are granted so that rows can be locked; the triggers refuse a real change.
    return "AR005" if role is Role.RETENTION and statement.startswith("UPDATE") else ""


def test_each_use_passes_where_nobody_refuses_it(prepared: Any) -> None:
    found = answers(prepared.url, USES)
    assert {state for statement, state in found.items() if not statement.startswith(("UPDATE", "TRUNCATE"))} == {""}
    assert {state for statement, state in found.items() if statement.startswith("TRUNCATE")} == {"", "AR005"}


@pytest.mark.parametrize("role", Role)
def test_OPS_05_each_privilege_on_tables_and_columns(prepared: Any, role: Role) -> None:
    assert len(USES) > 600
    found = answers(prepared.url_of(role.value), USES)
    assert found == {statement: wanted(role, statement, privilege) for statement, privilege in USES.items()}


@pytest.mark.parametrize("role", Role)
def test_OPS_05_each_view(prepared: Any, role: Role) -> None:
    reads = {name: f"SELECT * FROM agentruns.{name} WHERE false" for name in VIEWS}
    found = answers(prepared.url_of(role.value), reads.values())
    readable = {name for name, statement in reads.items() if found[statement] == ""}
    assert readable == {privilege.name for privilege in expected(role)} & set(VIEWS)
    assert set(found.values()) <= {"", DENIED}


@pytest.mark.parametrize("role", Role)
def test_OPS_05_no_view_is_a_way_to_write(prepared: Any, role: Role) -> None:
    deletes = [f"DELETE FROM agentruns.{name} WHERE false" for name in VIEWS]
    by_anybody = answers(prepared.url, deletes)
    found = answers(prepared.url_of(role.value), deletes)
    assert {found[statement] for statement in deletes if by_anybody[statement] != "55000"} == {DENIED}
    assert {found[statement] for statement in deletes if by_anybody[statement] == "55000"} == {"55000"}


DEFINITIONS = (
    "CREATE TABLE agentruns.intruder (x int)",
    "CREATE VIEW agentruns.intruder AS SELECT 1 AS x",
    "CREATE SEQUENCE agentruns.intruder",
    "CREATE TYPE agentruns.intruder AS ENUM ()",
    "CREATE FUNCTION agentruns.intruder() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE OR REPLACE FUNCTION agentruns.forbid_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE INDEX ON agentruns.run_events (event_id)",
    "CREATE RULE nothing AS ON INSERT TO agentruns.run_events DO INSTEAD NOTHING",
    "CREATE POLICY everybody ON agentruns.run_events",
    "CREATE SCHEMA intruder",
    "CREATE ROLE intruder",
    "ALTER TABLE agentruns.run_events ADD COLUMN x int",
    "ALTER TABLE agentruns.run_events DISABLE TRIGGER append_only",
    "ALTER TABLE agentruns.run_events RENAME TO events",
    "ALTER TABLE agentruns.run_events OWNER TO CURRENT_USER",
    "ALTER TABLE agentruns.run_events SET SCHEMA scratch",
    "ALTER VIEW agentruns.run_overview SET (security_invoker = true)",
    "ALTER FUNCTION agentruns.forbid_change() SECURITY DEFINER",
    "ALTER SCHEMA agentruns RENAME TO ours",
    "ALTER DEFAULT PRIVILEGES FOR ROLE agentruns_owner GRANT ALL ON TABLES TO PUBLIC",
    "COMMENT ON TABLE agentruns.run_events IS ''",
    "DROP TRIGGER append_only ON agentruns.run_events",
    "DROP TABLE agentruns.run_events CASCADE",
    "DROP VIEW agentruns.run_timeline",
    "DROP FUNCTION agentruns.forbid_change() CASCADE",
    "DROP SCHEMA agentruns CASCADE",
    "SET LOCAL ROLE agentruns_owner",
    "SET SESSION AUTHORIZATION agentruns_owner",
    "SET LOCAL session_replication_role = replica",
    "SELECT FROM elsewhere.secret",
    "SELECT FROM agentruns.alembic_version",
)


def test_each_definition_passes_where_nobody_refuses_it(prepared: Any) -> None:
    assert set(answers(prepared.url, DEFINITIONS).values()) == {""}


@pytest.mark.parametrize("role", Role)
def test_OPS_05_nothing_is_defined_nor_reached_beyond_the_tables(prepared: Any, role: Role) -> None:
    found = answers(prepared.url_of(role.value), DEFINITIONS)
    assert found == dict.fromkeys(DEFINITIONS, DENIED)


@pytest.mark.parametrize("role", Role)
def test_OPS_05_the_function_is_not_executed(prepared: Any, role: Role) -> None:
    call = "SELECT agentruns.forbid_change()"
    assert answers(prepared.url, [call]) == {call: "0A000"}
    assert answers(prepared.url_of(role.value), [call]) == {call: DENIED}


def test_OPS_05_rows_are_locked_where_the_job_needs_it(prepared: Any) -> None:
    locks = {table.name: f"SELECT FROM agentruns.{table.name} WHERE false FOR UPDATE" for table in TABLES}

    def lockable(role: Role) -> set[str]:
        found = answers(prepared.url_of(role.value), locks.values())
        return {name for name, statement in locks.items() if found[statement] == ""}

    moving = {table.name for table in TABLES if table.info}
    assert {role: lockable(role) for role in Role} == {
        Role.RUNTIME: moving,
        Role.OPERATOR: moving,
        Role.READER: set(),
        Role.EVIDENCE_READER: set(),
        Role.RETENTION: {"runs", "scheduler_fairness_reservations"},
    }


def test_OPS_05_a_revision_of_later_gives_nothing_before_the_next_apply(prepared: Any) -> None:
    owner = f"CREATE TABLE agentruns.later_{os.getpid()} (x int)"

    async def create() -> None:
        connection = await connected(prepared.url)
        await connection.execute(f"SET ROLE agentruns_owner; {owner}")
        await connection.close()

    asyncio.run(create())
    read = f"SELECT FROM agentruns.later_{os.getpid()}"
    found = [answers(prepared.url_of(role.value), [read])[read] for role in Role]
    assert found == [DENIED] * len(Role)
