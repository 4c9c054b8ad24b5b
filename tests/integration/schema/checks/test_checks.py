"""Every CHECK is violated by a row that violates nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, Table, insert, text
from sqlalchemy.exc import IntegrityError

from agentruns.orm import Base
from agentruns.store.transient import constraint_of

Within = Callable[[str, Callable[[Connection], Any]], Any]
Samples = dict[str, dict[str, Any]]
Violations = dict[str, dict[str, list[dict[str, Any]]]]

TABLES: dict[str, Table] = {table.name: table for table in Base.metadata.tables.values()}
REVISION = {
    "number": 17,
    "revision": "x",
    "checksum": bytes(32),
    "oldest_code": 17,
    "applied_at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "applied_by": "x",
    "package_version": "1",
}


def insert_parents(connection: Connection, table: str, samples: Samples) -> None:
    """Insert the rows that the row under test points to."""
    for key in TABLES[table].foreign_key_constraints:
        parent = key.referred_table.name
        insert_parents(connection, parent, samples)
        connection.execute(insert(TABLES[parent]).values(samples[parent]))


def test_DB_03_every_check_has_an_example(database_url: str, within: Within, violations: Violations) -> None:
    def names(connection: Connection) -> Any:
        statement = "SELECT conname FROM pg_constraint WHERE contype = 'c' AND connamespace = 'agentruns'::regnamespace"
        return set(connection.execute(text(statement)).scalars())

    examples = {f"ck_{table}_{name}" for table, changes in violations.items() for name in changes}
    assert within(database_url, names) == examples


@pytest.mark.parametrize("table", TABLES)
def test_DB_03_row_that_violates_only_one_check_is_refused_by_its_name(
    database_url: str, within: Within, samples: Samples, violations: Violations, table: str
) -> None:
    valid = samples.get(table, REVISION)

    def violate(connection: Connection) -> list[tuple[str, dict[str, Any]]]:
        insert_parents(connection, table, samples)
        with connection.begin_nested() as valid_row:
            connection.execute(insert(TABLES[table]).values(valid))
            valid_row.rollback()
        wrong = []
        for name, examples in violations[table].items():
            for changes in examples:
                row = {**valid, **changes}
                if refused_by(connection, table, row) != f"ck_{table}_{name}":
                    wrong.append((name, changes))
                if not passes_without(connection, table, f"ck_{table}_{name}", row):
                    wrong.append((f"not only {name}", changes))
        return wrong

    assert within(database_url, violate) == []


def refused_by(connection: Connection, table: str, row: dict[str, Any]) -> str:
    try:
        with connection.begin_nested():
            connection.execute(insert(TABLES[table]).values(row))
    except IntegrityError as error:
        return constraint_of(error)
    return ""


def passes_without(connection: Connection, table: str, name: str, row: dict[str, Any]) -> bool:
    """Insert with the check dropped: whatever refuses now is something else; foreign keys do not count."""
    with connection.begin_nested() as attempt:
        connection.execute(text(f"ALTER TABLE agentruns.{table} DROP CONSTRAINT {name}"))
        other = refused_by(connection, table, row)
        attempt.rollback()
    return other == "" or other.startswith("fk_")
