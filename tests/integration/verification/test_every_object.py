"""Every object of the manifest: gone, altered, disabled. A new object is tested because it is there.

All objects of a kind are changed in the same way at once, and each has to be named; nothing but they, where the change
touches nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, text

from agentruns.errors import SchemaVerificationError
from agentruns.store.released import released_catalogue
from agentruns.store.verification import verify_schema

Undone = Callable[[Callable[[Connection], Any]], Any]


class Change(NamedTuple):
    """What is done to an object, how, and what verification has to say."""

    way: str
    statement: str
    finding: str


CATALOGUE = released_catalogue("agentruns")
#: A default that a column of the type can have.
DEFAULTS = {
    "bigint": "7",
    "bytea": "'x'",
    "integer": "7",
    "smallint": "7",
    "text": "'x'",
    "timestamp": "now()",
    "uuid": "gen_random_uuid()",
}
#: Internal triggers have names with numbers, and only their constraint says which they are.
DISABLE_INTERNAL = """
DO $$ BEGIN EXECUTE (
  SELECT format('ALTER TABLE agentruns.{table} DISABLE TRIGGER %I', t.tgname)
  FROM pg_trigger AS t JOIN pg_constraint AS c ON c.oid = t.tgconstraint JOIN pg_proc AS p ON p.oid = t.tgfoid
  WHERE t.tgrelid = 'agentruns.{table}'::regclass AND c.conname = '{constraint}' AND p.proname = '{function}'
); END $$
"""
REMOVE_INTERNAL = """
DELETE FROM pg_trigger AS t USING pg_constraint AS c, pg_proc AS p
WHERE c.oid = t.tgconstraint AND p.oid = t.tgfoid
AND t.tgrelid = 'agentruns.{table}'::regclass AND c.conname = '{constraint}' AND p.proname = '{function}'
"""

DEFER = """
UPDATE pg_constraint SET condeferrable = true
WHERE conrelid = 'agentruns.{table}'::regclass AND conname = '{constraint}'
"""
UNSET = "UPDATE pg_index SET {flag} = false WHERE indexrelid = 'agentruns.{index}'::regclass"
REPLACE = "CREATE OR REPLACE VIEW agentruns.{view} WITH ({option}) AS SELECT q.*, 1 AS one FROM ({query}) AS q"


def relation(name: str, definition: str) -> Iterator[Change]:
    """A table, or a view with its options."""
    if definition.startswith("r"):
        yield Change("gone", f"DROP TABLE IF EXISTS agentruns.{name} CASCADE", f"missing table {name}")
        yield Change("altered", f"ALTER TABLE agentruns.{name} SET (fillfactor = 33)", f"different table {name}")
    else:
        option = definition.removeprefix("v ").partition("=")[0]
        yield Change("gone", f"DROP VIEW IF EXISTS agentruns.{name} CASCADE", f"missing view {name}")
        yield Change("altered", f"ALTER VIEW agentruns.{name} RESET ({option})", f"different view {name}")


def column(name: str, definition: str) -> Iterator[Change]:
    table, _, called = name.partition(".")
    altered = f"ALTER TABLE agentruns.{table} ALTER {called} SET DEFAULT {DEFAULTS[definition.split(maxsplit=1)[0]]}"
    yield Change("gone", f"ALTER TABLE agentruns.{table} DROP {called} CASCADE", f"missing column {name}")
    yield Change("altered", altered, f"different column {name}")


def constraint(name: str, definition: str) -> Iterator[Change]:
    table, _, called = name.partition(".")
    drop = f"ALTER TABLE agentruns.{table} DROP CONSTRAINT IF EXISTS {called} CASCADE"
    yield Change("gone", drop, f"missing constraint {name}")
    if definition.startswith(("CHECK", "FOREIGN")):
        again = f"DROP CONSTRAINT {called}, ADD CONSTRAINT {called} {definition} NOT VALID"
        yield Change("altered", f"ALTER TABLE agentruns.{table} {again}", f"different constraint {name}")
    else:
        deferrable = DEFER.format(table=table, constraint=called)
        yield Change("altered", deferrable, f"different constraint {name}")


def index(name: str, _: str) -> Iterator[Change]:
    table, _, called = name.partition(".")
    gone = f"DROP INDEX agentruns.{called}"
    if name in CATALOGUE["constraint"]:
        gone = f"ALTER TABLE agentruns.{table} DROP CONSTRAINT {called} CASCADE"
    yield Change("gone", gone, f"missing index {name}")
    yield Change("altered", f"ALTER INDEX agentruns.{called} SET (fillfactor = 33)", f"different index {name}")
    for flag in ("indisvalid", "indisready"):
        statement = UNSET.format(flag=flag, index=called)
        yield Change(flag, statement, f"different index {name}")


def trigger(name: str, _: str) -> Iterator[Change]:
    table, _, called = name.partition(".")
    yield Change("gone", f"DROP TRIGGER {called} ON agentruns.{table}", f"missing trigger {name}")
    for state in ("DISABLE", "ENABLE REPLICA", "ENABLE ALWAYS"):
        statement = f"ALTER TABLE agentruns.{table} {state} TRIGGER {called}"
        yield Change(state, statement, f"different trigger {name}")
    one = min(key for key in CATALOGUE["column"] if key.startswith(f"{table}.")).partition(".")[2]
    events = f"BEFORE UPDATE OF {one} OR DELETE OR TRUNCATE ON agentruns.{table} FOR EACH STATEMENT"
    altered = f"CREATE OR REPLACE TRIGGER {called} {events} EXECUTE FUNCTION agentruns.forbid_change()"
    yield Change("other columns", altered, f"different trigger {name}")


def constraint_trigger(name: str, _: str) -> Iterator[Change]:
    table, called, function = name.split(".")
    names = {"table": table, "constraint": called, "function": function}
    yield Change("disabled", DISABLE_INTERNAL.format(**names), f"different constraint trigger {name}")
    yield Change("gone", REMOVE_INTERNAL.format(**names), f"missing constraint trigger {name}")


def function(name: str, _: str) -> Iterator[Change]:
    yield Change("gone", f"DROP FUNCTION agentruns.{name} CASCADE", f"missing function {name}")
    head = f"CREATE OR REPLACE FUNCTION agentruns.{name} RETURNS trigger LANGUAGE plpgsql SET search_path = ''"
    yield Change("altered", f"{head} AS 'BEGIN RETURN NULL; END'", f"different function {name}")
    for change in ("SECURITY DEFINER", "STRICT", "LEAKPROOF", "STABLE", "PARALLEL SAFE", "RESET search_path"):
        yield Change(change, f"ALTER FUNCTION agentruns.{name} {change}", f"different function {name}")


def view(name: str, definition: str) -> Iterator[Change]:
    option = CATALOGUE["relation"][name].removeprefix("v ")
    altered = REPLACE.format(view=name, option=option, query=definition.rstrip(";"))
    yield Change("altered", altered, f"different view {name}")


KINDS: dict[str, Callable[[str, str], Iterator[Change]]] = {
    "column": column,
    "constraint": constraint,
    "constraint trigger": constraint_trigger,
    "function": function,
    "index": index,
    "relation": relation,
    "trigger": trigger,
    "view": view,
}


#: Without these nobody can tell which revisions were applied, so another step refuses first.
FIRST = (
    "missing table applied_revisions",
    "missing column applied_revisions.number",
    "missing column applied_revisions.revision",
    "missing column applied_revisions.checksum",
    "missing column applied_revisions.oldest_code",
)


def changes(kind: str) -> list[Change]:
    every = [change for name, definition in CATALOGUE[kind].items() for change in KINDS[kind](name, definition)]
    return [change for change in every if change.finding not in FIRST]


@pytest.mark.parametrize(
    ("kind", "way"),
    [(kind, way) for kind in CATALOGUE for way in dict.fromkeys(change.way for change in changes(kind))],
)
def test_OPS_04_no_object_can_go_or_change_unnoticed(undone: Undone, kind: str, way: str) -> None:
    made = [change for change in changes(kind) if change.way == way]

    def work(connection: Connection) -> tuple[str, ...]:
        with connection.begin_nested() as savepoint:
            for change in made:
                connection.exec_driver_sql(change.statement)
            with pytest.raises(SchemaVerificationError) as caught:
                verify_schema(connection)
            savepoint.rollback()
        verify_schema(connection)
        assert caught.value.reason == "incomplete"
        return caught.value.findings

    expected, found = {change.finding for change in made}, set(undone(work))
    assert expected <= found
    if way != "gone":
        assert found == expected


def test_OPS_04_every_object_can_go_and_be_changed() -> None:
    for kind, objects in CATALOGUE.items():
        named = {change.finding for change in changes(kind)} | set(FIRST)
        words = ("table", "view") if kind == "relation" else (kind,)
        for verdict in ("different", "missing") if kind != "view" else ("different",):
            assert all(any(f"{verdict} {word} {name}" in named for word in words) for name in objects)


@pytest.mark.parametrize("finding", FIRST)
def test_OPS_04_what_tells_the_revisions_cannot_go_unnoticed(undone: Undone, finding: str) -> None:
    kind = "relation" if "table" in finding else "column"
    (change,) = [
        change
        for name in CATALOGUE[kind]
        for change in KINDS[kind](name, CATALOGUE[kind][name])
        if change.finding == finding
    ]

    def work(connection: Connection) -> SchemaVerificationError:
        connection.exec_driver_sql(change.statement)
        with pytest.raises(SchemaVerificationError) as caught:
            verify_schema(connection)
        return caught.value

    error = undone(work)
    if kind == "relation":
        assert (error.reason, error.findings) == ("not_migrated", ())
    else:
        assert (error.reason, error.findings) == ("incomplete", ("different table applied_revisions",))


def test_OPS_04_a_session_that_prints_differently_sees_the_same(undone: Undone) -> None:
    def zone(connection: Connection) -> str:
        verify_schema(connection)
        return str(connection.execute(text("SHOW TimeZone")).scalar_one())

    assert undone(zone) == "Asia/Tokyo"


def test_every_kind_of_object_is_in_the_manifest() -> None:
    assert {kind: len(objects) for kind, objects in CATALOGUE.items()} == {
        "column": 224,
        "constraint": 194,
        "constraint trigger": 52,
        "function": 1,
        "index": 41,
        "relation": 49,
        "trigger": 26,
        "view": 23,
    }
