"""Downgrades: no row of any table goes without its schema's name, and objects go in an order that needs no cascade."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, event, text

from agentruns import migrations
from agentruns.errors import RefusedError
from agentruns.store.released import released_catalogue
from agentruns.store.verification.catalogue import read_catalogue

Within = Callable[[str, Callable[[Connection], Any]], Any]

HEAD = 16
TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'agentruns'::regnamespace AND relkind = 'r'"
#: What stands between a table and a row of nulls.
RULES = """
SELECT format('ALTER TABLE agentruns.%I DROP CONSTRAINT %I CASCADE', t.relname, c.conname)
FROM pg_constraint AS c JOIN pg_class AS t ON t.oid = c.conrelid
WHERE t.relname = :name AND t.relnamespace = 'agentruns'::regnamespace AND c.contype <> 'n'
UNION ALL
SELECT format('ALTER TABLE agentruns.%I ALTER COLUMN %I DROP NOT NULL', t.relname, a.attname)
FROM pg_attribute AS a JOIN pg_class AS t ON t.oid = a.attrelid
WHERE t.relname = :name AND t.relnamespace = 'agentruns'::regnamespace AND a.attnum > 0 AND a.attnotnull
"""
#: What a statement of a downgrade drops, and its place in the order.
DROPS = {
    r"DROP VIEW": 1,
    r"DROP TRIGGER": 2,
    r"DROP INDEX": 3,
    r"ALTER TABLE \S+ DROP COLUMN": 4,
    r"DROP TABLE": 5,
    r"DROP FUNCTION": 6,
}


#: A run that waits for its gate.
RUN = """
INSERT INTO agentruns.runs (tenant_id, run_id, thread_id, invocation_id, status, revision, changed_at,
  lifecycle_sequence, head_sequence, head_digest, head_recorded_at, fencing_epoch, superstep, checkpoint_digest,
  scheduler_ready_at, scheduler_not_before)
SELECT 't', id, id, id, 'active', 1, now() - interval '1 h', 1, 1, sha256(''), now(), 0, 0, sha256(''), now(), now()
FROM (VALUES ('0198c0de-0000-7000-8000-000000000002'::uuid)) AS v (id)
"""


def tables(connection: Connection) -> set[str]:
    return set(connection.execute(text(TABLES)).scalars()) - {"alembic_version", "applied_revisions"}


def fill(connection: Connection, table: str, values: str = "DEFAULT VALUES") -> None:
    """Put one row into a table, whatever it asks of rows."""
    rules = connection.execute(text(RULES), {"name": table}).scalars().all()
    for rule in sorted(rules, reverse=True):  # constraints before the columns that they keep from being null
        connection.execute(text(rule))
    connection.execute(text(f"INSERT INTO agentruns.{table} {values}"))


def below(number: int) -> str:
    return str(number - 1) if number > 1 else "base"


def refused(connection: Connection, number: int) -> None:
    """Downgrade by one without the schema's name, with one that is nearly right, and with the right one."""
    for name in (None, "AGENTRUNS"):
        attempt = connection.begin_nested()
        with pytest.raises(RefusedError) as caught:
            migrations.downgrade(connection, to=below(number), destroy_evidence=name)
        attempt.rollback()
        assert caught.value.reason == "downgrade_destroys_evidence"
    migrations.downgrade(connection, to=below(number), destroy_evidence="agentruns")


def test_no_table_is_dropped_with_a_row_in_it(database_url: str, within: Within) -> None:
    def work(connection: Connection) -> dict[str, int]:
        family: dict[str, int] = {}
        for number in range(HEAD, 0, -1):
            before = tables(connection)
            look = connection.begin_nested()
            migrations.downgrade(connection, to=below(number))
            dropped = before - tables(connection)
            look.rollback()
            for table in sorted(dropped):
                filled = connection.begin_nested()
                fill(connection, table)
                refused(connection, number)
                filled.rollback()
                family[table] = number
            migrations.downgrade(connection, to=below(number))
        return family

    every = within(database_url, tables)
    family = within(database_url, work)
    assert set(family) == every
    assert sorted(set(range(1, HEAD + 1)) - set(family.values())) == [7, 11, 12]  # they add columns


def test_column_is_not_dropped_with_a_value_in_it(database_url: str, within: Within) -> None:
    def work(connection: Connection) -> None:
        for number, table, values in (
            (12, "runs", "(scheduler_not_before) VALUES (now())"),
            (11, "run_quarantines", "(epoch) VALUES (1)"),
            (7, "runs", "(scheduler_ready_at) VALUES (now())"),
        ):
            migrations.downgrade(connection, to=str(number))
            filled = connection.begin_nested()
            fill(connection, table)
            without = connection.begin_nested()
            migrations.downgrade(connection, to=below(number))
            without.rollback()
            fill(connection, table, values)
            refused(connection, number)
            filled.rollback()

    within(database_url, work)


def test_runs_are_ready_again_since_their_last_change(database_url: str, within: Within) -> None:
    def work(connection: Connection) -> Any:
        connection.execute(text(RUN))
        migrations.downgrade(connection, to="6", destroy_evidence="agentruns")
        migrations.upgrade(connection)
        return connection.execute(text("SELECT scheduler_ready_at = changed_at FROM agentruns.runs")).scalar_one()

    assert within(database_url, work) is True


def test_objects_go_in_order_without_a_cascade_and_come_again(database_url: str, within: Within) -> None:
    def work(connection: Connection) -> list[list[int]]:
        orders = []
        for number in range(HEAD, 0, -1):
            statements: list[str] = []
            event.listen(connection, "before_cursor_execute", lambda *sent, to=statements: to.append(sent[2].strip()))
            migrations.downgrade(connection, to=below(number))
            places = [place for each in statements for kind, place in DROPS.items() if re.match(kind, each)]
            assert not [each for each in statements if each.endswith("CASCADE")]
            orders.append(places)
        assert read_catalogue(connection, schema="agentruns") == {}
        migrations.upgrade(connection)
        assert read_catalogue(connection, schema="agentruns") == released_catalogue("agentruns")
        return orders

    orders = within(database_url, work)
    assert orders == [sorted(places) for places in orders]
    assert (orders[0], orders[1], orders[-1]) == ([1, 5], [2, 3, 4, 5], [5, 6])
