"""Append-only records stay: for the owner, for a superuser, for every spelling of a change. Retention alone passes."""

# ruff: noqa: S608 - the names in these statements are those of our own models

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Table, insert, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.orm import Base
from agentruns.store.transient import sqlstate_of

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]
Samples = dict[str, dict[str, Any]]

TABLES: dict[str, Table] = {
    table.name: table for table in Base.metadata.tables.values() if table.name != "applied_revisions"
}
#: The complete ``UPDATE`` lines of the specification.
ALLOWED = {
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
OWNER = f"agentruns_test_owner_{os.getpid()}"


@pytest.fixture
def owned_url(server: Any, empty_database_url: str, within: Within) -> Iterator[str]:
    """A database that a role without any privilege but CREATE has migrated, and so owns."""

    def migrate(connection: Connection) -> None:
        connection.execute(text(f"CREATE ROLE {OWNER}"))
        name = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(text(f"GRANT CREATE ON DATABASE {name} TO {OWNER}"))
        connection.execute(text(f"SET LOCAL ROLE {OWNER}"))
        migrations.upgrade(connection)

    within(empty_database_url, migrate)
    yield empty_database_url
    within(empty_database_url, lambda connection: connection.execute(text(f"DROP OWNED BY {OWNER} CASCADE")))
    server.execute(f"DROP ROLE {OWNER}")


@pytest.fixture(params=["superuser", "owner"])
def migrated(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A database, and the statement that becomes whoever tries."""
    if request.param == "owner":
        return request.getfixturevalue("owned_url"), f"SET LOCAL ROLE {OWNER}"
    return request.getfixturevalue("database_url"), "SELECT"


def state_of(connection: Connection, statement: str) -> str:
    """Try a statement and undo it; the answer is its SQLSTATE, empty where it passed."""
    try:
        with connection.begin_nested() as attempt:
            connection.execute(text(statement))
            attempt.rollback()
    except DBAPIError as error:
        return sqlstate_of(error)
    return ""


#: The same for very many statements, by one to the server.
STATE_OF = """
CREATE FUNCTION pg_temp.state_of(tried text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE tried;
    RAISE EXCEPTION USING ERRCODE = 'TRIED';
EXCEPTION WHEN OTHERS THEN
    RETURN CASE SQLSTATE WHEN 'TRIED' THEN '' ELSE SQLSTATE END;
END $$
"""


def changes_of(table: Table) -> dict[str, str]:
    """Spell each change of a table that no row would match, with what it should be answered."""
    name = f"agentruns.{table.name}"
    allowed = ALLOWED.get(table.name, "").split()
    key = ", ".join(column.name for column in table.primary_key)
    merge = f"MERGE INTO {name} AS t USING (SELECT 1) AS s ON false WHEN MATCHED THEN"
    statements = {f"DELETE FROM {name} WHERE false": "AR005", f"TRUNCATE {name} CASCADE": "AR005"}
    statements[f"{merge} DELETE"] = "AR005"
    for column in (column.name for column in table.columns):
        answer = "" if column in allowed else "AR005"
        statements[f"UPDATE {name} SET {column} = {column} WHERE false"] = answer
        statements[f"{merge} UPDATE SET {column} = t.{column}"] = answer
        conflict = f"INSERT INTO {name} SELECT * FROM {name} WHERE false ON CONFLICT ({key})"
        statements[f"{conflict} DO UPDATE SET {column} = excluded.{column}"] = answer
    return statements


def test_DB_01_every_change_but_of_an_allowed_column_is_refused(migrated: tuple[str, str], within: Within) -> None:
    url, become = migrated

    expected = {statement: answer for table in TABLES.values() for statement, answer in changes_of(table).items()}

    def attempt(connection: Connection) -> dict[str, str]:
        connection.execute(text(become))
        connection.execute(text(STATE_OF))
        asked = text("SELECT tried, pg_temp.state_of(tried) FROM unnest(CAST(:tried AS text[])) AS tried")
        return {row.tried: row.state_of for row in connection.execute(asked, {"tried": list(expected)})}

    assert within(url, attempt) == expected


def test_DB_01_rows_that_are_there_stay_as_they_are(
    migrated: tuple[str, str], within: Within, samples: Samples
) -> None:
    url, become = migrated

    def attempt(connection: Connection) -> list[str]:
        connection.execute(text(become))
        for name, row in samples.items():
            connection.execute(insert(TABLES[name]).values(row))
        return [
            statement
            for name, table in TABLES.items()
            for statement in (
                f"DELETE FROM agentruns.{name}",
                f"UPDATE agentruns.{name} SET {next(iter(table.primary_key)).name} = 'b'",
            )
            if state_of(connection, statement) != "AR005"
        ]

    assert within(url, attempt) == []


def test_allowed_columns_are_columns() -> None:
    assert {name: set(columns.split()) - set(TABLES[name].columns.keys()) for name, columns in ALLOWED.items()} == {
        name: set() for name in ALLOWED
    }


def test_refusal_names_operation_schema_and_table(database_url: str, within: Within) -> None:
    def attempt(connection: Connection) -> Any:
        with pytest.raises(DBAPIError) as caught:
            connection.execute(text("TRUNCATE agentruns.run_events"))
        assert caught.value.orig is not None
        return caught.value.orig.__cause__

    cause = within_rolled_back(database_url, within, attempt)
    assert (cause.sqlstate, cause.schema_name, cause.table_name) == ("AR005", "agentruns", "run_events")
    assert str(cause) == "TRUNCATE of agentruns.run_events is refused: append-only"


def within_rolled_back(url: str, within: Within, work: Callable[[Connection], Any]) -> Any:
    """Work in a transaction that is undone; an error inside it has aborted it anyway."""
    answer: list[Any] = []

    def undone(connection: Connection) -> None:
        with connection.begin_nested() as transaction:
            answer.append(work(connection))
            transaction.rollback()

    within(url, undone)
    return answer[0]


RETENTION = "SELECT set_config('agentruns.retention', '{}', true)"


def test_DB_02_retention_deletes_and_nothing_else(database_url: str, within: Within) -> None:
    def attempt(connection: Connection) -> list[tuple[str, str]]:
        connection.execute(text(RETENTION.format("agentruns")))
        states = []
        for name, table in TABLES.items():
            states.append((name, state_of(connection, f"DELETE FROM agentruns.{name} WHERE false")))
            fixed = next(iter(table.primary_key)).name
            update = f"UPDATE agentruns.{name} SET {fixed} = {fixed} WHERE false"
            states.append((name, state_of(connection, update)))
            states.append((name, state_of(connection, f"TRUNCATE agentruns.{name} CASCADE")))
        return states

    assert within(database_url, attempt) == [(name, state) for name in TABLES for state in ("", "AR005", "AR005")]


def test_DB_02_setting_of_another_schema_or_of_an_ended_transaction_opens_nothing(owner_url: str, run: Run) -> None:
    def attempt(connection: Connection, schema: str | None) -> str:
        if schema is not None:
            connection.execute(text(RETENTION.format(schema)))
        return state_of(connection, "DELETE FROM agentruns.run_events WHERE false")

    async def work() -> list[str]:
        async with create_async_engine(owner_url, poolclass=NullPool).connect() as connection:
            states = [await connection.run_sync(attempt, schema) for schema in ("other", "agentruns", None)]
            await connection.commit()
            return [*states, await connection.run_sync(attempt, None)]

    assert run(work()) == ["AR005", "", "", "AR005"]


#: In no order that a foreign key would need: keys are checked when the statement ends.
WHOLE_RUN = """
WITH run AS (DELETE FROM agentruns.runs RETURNING 1), {others} SELECT count(*) FROM run
"""
OF_A_RUN = [
    name for name, table in TABLES.items() if "run_id" in table.columns and name not in ("runs", "tenant_slots")
]


def test_DB_07_whole_run_goes_by_one_statement_and_no_part_goes_alone(
    database_url: str, within: Within, samples: Samples
) -> None:
    def attempt(connection: Connection) -> tuple[list[str], int, list[int]]:
        for name, row in samples.items():
            connection.execute(insert(TABLES[name]).values(row))
        connection.execute(text(RETENTION.format("agentruns")))
        alone = [state_of(connection, f"DELETE FROM agentruns.{name}") for name in ("runs", "agent_admissions")]
        others = ", ".join(f"d{n} AS (DELETE FROM agentruns.{name})" for n, name in enumerate(OF_A_RUN))
        removed = connection.execute(text(WHOLE_RUN.format(others=others))).scalar_one()
        left = [
            connection.execute(text(f"SELECT count(*) FROM agentruns.{name}")).scalar_one()
            for name in ("runs", *OF_A_RUN)
        ]
        return alone, removed, left

    assert within(database_url, attempt) == (["23503", "23503"], 1, [0] * (len(OF_A_RUN) + 1))
