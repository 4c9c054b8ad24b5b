"""The chain: what it makes, step by step, and that nothing else makes the same schema differently."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from functools import partial
from importlib.resources import files
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from agentruns import migrations
from agentruns.migrations import manifest
from agentruns.orm import Base
from agentruns.store.released import released_catalogue
from agentruns.store.verification.catalogue import read_catalogue

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Within = Callable[[str, Callable[[Connection], Any]], Any]

HEAD = 16
catalogue = partial(read_catalogue, schema="agentruns")


def column(connection: Connection, statement: str) -> list[Any]:
    return list(connection.execute(text(statement)).scalars())


def comments(connection: Connection) -> set[tuple[str, str | None, str | None]]:
    rows = connection.execute(
        text("""
        SELECT c.relname, a.attname, col_description(c.oid, a.attnum)
        FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'agentruns'::regnamespace AND c.relkind = 'r' AND c.relname <> 'alembic_version'
        UNION ALL
        SELECT c.relname, NULL, obj_description(c.oid, 'pg_class') FROM pg_class AS c
        WHERE c.relnamespace = 'agentruns'::regnamespace AND c.relkind = 'r' AND c.relname <> 'alembic_version'
        """)
    )
    return {tuple(row) for row in rows}


def test_empty_to_head_records_every_revision(empty_database_url: str, within: Within) -> None:
    within(empty_database_url, migrations.upgrade)

    def rows(connection: Connection) -> list[Any]:
        statement = "SELECT number, revision, encode(checksum, 'hex'), oldest_code FROM agentruns.applied_revisions"
        return [tuple(row) for row in connection.execute(text(f"{statement} ORDER BY number"))]

    released = json.loads(files("agentruns.migrations").joinpath("manifest.json").read_bytes())["revisions"]
    assert within(empty_database_url, rows) == [
        (entry["number"], entry["revision"], entry["sha256"], entry["oldest_code"]) for entry in released
    ]
    assert [entry["oldest_code"] for entry in released] == [*range(1, HEAD), HEAD - 1]


def test_each_step_down_undoes_its_step_up(empty_database_url: str, within: Within) -> None:
    def walk(connection: Connection) -> None:
        migrations.upgrade(connection, to="1")
        seen = {1: catalogue(connection)}
        for number in range(2, HEAD + 1):
            migrations.upgrade(connection, to=str(number))
            seen[number] = catalogue(connection)
            migrations.downgrade(connection, to=str(number - 1))
            assert catalogue(connection) == seen[number - 1]
            migrations.upgrade(connection, to=str(number))
            assert catalogue(connection) == seen[number]
        migrations.downgrade(connection, to="base")
        assert catalogue(connection) == {}
        assert column(connection, "SELECT version_num FROM agentruns.alembic_version") == []
        migrations.upgrade(connection)
        assert catalogue(connection) == seen[HEAD]

    within(empty_database_url, walk)


def test_upgrade_at_the_head_does_nothing(database_url: str, within: Within) -> None:
    before = within(database_url, lambda c: column(c, "SELECT applied_at FROM agentruns.applied_revisions"))
    within(database_url, migrations.upgrade)
    assert within(database_url, lambda c: column(c, "SELECT applied_at FROM agentruns.applied_revisions")) == before


def test_upgrade_without_a_transaction_makes_and_commits_its_own(empty_database_url: str, run: Run) -> None:
    async def work() -> list[Any]:
        engine = create_async_engine(empty_database_url)
        async with engine.connect() as connection:
            await connection.run_sync(migrations.upgrade)
        async with engine.connect() as connection:
            found = await connection.run_sync(lambda c: column(c, "SELECT version_num FROM agentruns.alembic_version"))
        await engine.dispose()
        return list(found)

    assert run(work()) == ["agentruns_0016"]


def test_DB_08_catalogue_is_the_released_one_on_every_server(database_url: str, within: Within) -> None:
    assert within(database_url, catalogue) == released_catalogue("agentruns")


def test_manifest_is_rendered_anew_to_the_same_bytes(database_url: str, within: Within) -> None:
    rendered = manifest.render(within(database_url, catalogue))
    assert rendered.encode() == files("agentruns.migrations").joinpath("manifest.json").read_bytes()


@pytest.mark.parametrize("schema", ["s", "order", "a_name_that_is_just_as_long_as_a_name_may_be_here"[:48]])
def test_other_schema_has_the_released_catalogue(empty_database_url: str, within: Within, schema: str) -> None:
    def work(connection: Connection) -> None:
        migrations.upgrade(connection, schema=schema)
        quoted = column(connection, f"SELECT quote_ident('{schema}')")[0]
        assert read_catalogue(connection, schema=schema) == released_catalogue(quoted)
        assert column(connection, "SELECT nspname FROM pg_namespace WHERE nspname = 'agentruns'") == []

    within(empty_database_url, work)


def test_models_make_what_the_revisions_make(server: Any, database_url: str, within: Within) -> None:
    made = server.empty()

    def create(connection: Connection) -> tuple[Any, Any]:
        connection.execute(text("CREATE SCHEMA agentruns"))
        Base.metadata.create_all(connection)
        return catalogue(connection), comments(connection)

    try:
        from_models, model_comments = within(server.url(made), create)
    finally:
        server.drop(made)
    migrated = within(database_url, catalogue)
    views = {name for name, definition in migrated["relation"].items() if definition.startswith("v")}
    migrated["relation"] = {name: text for name, text in migrated["relation"].items() if name not in views}
    for kind in ("view", "trigger", "function"):
        migrated.pop(kind)
    assert from_models == migrated
    assert model_comments == within(database_url, comments)


def test_alembic_finds_no_difference(database_url: str, within: Within) -> None:
    def differences(connection: Connection) -> Any:
        connection.execute(text("SET LOCAL search_path = public"))
        connection.dialect.default_schema_name = "public"
        options = {"include_schemas": True, "version_table_schema": "agentruns", "compare_type": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)

    assert within(database_url, differences) == []


def test_M3_every_table_view_and_column_has_a_comment(database_url: str, within: Within) -> None:
    def silent(connection: Connection) -> list[Any]:
        return column(
            connection,
            """
            SELECT c.relname || coalesce('.' || a.attname, '')
            FROM pg_class AS c
            LEFT JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum >= 0 AND NOT a.attisdropped
            WHERE c.relnamespace = 'agentruns'::regnamespace AND c.relkind IN ('r', 'v')
            AND c.relname <> 'alembic_version'
            AND (coalesce(col_description(c.oid, a.attnum), '') !~ '^[A-Z].*[.]$'
                 OR coalesce(obj_description(c.oid, 'pg_class'), '') !~ '^[A-Z].*[.]$')
            """,
        )

    assert within(database_url, silent) == []


def test_names_fit_into_63_bytes() -> None:
    names = {
        element.name
        for table in Base.metadata.tables.values()
        for element in (table, *table.columns, *table.constraints, *table.indexes)
    }
    assert [name for name in names if not name or len(str(name).encode()) > 63] == []


def test_failed_revision_leaves_nothing(empty_database_url: str, within: Within) -> None:
    def squat(connection: Connection) -> None:
        connection.execute(text("CREATE SCHEMA agentruns"))
        connection.execute(text("CREATE TABLE agentruns.node_attempts (squatter integer)"))

    within(empty_database_url, squat)
    with pytest.raises(DBAPIError, match="node_attempts"):
        within(empty_database_url, migrations.upgrade)
    assert set(within(empty_database_url, catalogue)["relation"]) == {"node_attempts"}
