"""Scripts for a DBA: replayed by psql they leave what an upgrade over a connection leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from click.testing import CliRunner
from sqlalchemy import Connection, text

from agentruns import migrations
from agentruns.cli import main
from agentruns.store.verification.catalogue import read_catalogue

Within = Callable[[str, Callable[[Connection], Any]], Any]
Replay = Callable[..., str]

APPLIED = "number, revision, encode(checksum, 'hex'), oldest_code, applied_by, package_version"
COMMENTS = """
SELECT d.objoid::regclass::text, d.objsubid, d.description FROM pg_description AS d
JOIN pg_class AS c ON c.oid = d.objoid AND c.relnamespace = to_regnamespace(:schema)
WHERE d.classoid = 'pg_class'::regclass
"""


@pytest.fixture
def other_url(server: Any) -> Iterator[str]:
    """Another empty database."""
    name = server.empty()
    yield server.url(name)
    server.drop(name)


def schema_of(connection: Connection, schema: str = "agentruns", *, versions: str = "") -> tuple[Any, ...]:
    """Read everything of a schema but the instants; the version table may be in another one."""
    rows = connection.execute(text(f'SELECT {APPLIED} FROM "{schema}".applied_revisions ORDER BY number'))  # noqa: S608
    comments = connection.execute(text(COMMENTS), {"schema": f'"{schema}"'})
    version = connection.execute(text(f'SELECT version_num FROM "{versions or schema}".alembic_version'))  # noqa: S608
    return (
        read_catalogue(connection, schema=schema),
        [tuple(row) for row in rows],
        {tuple(row) for row in comments},
        set(version.scalars()),
    )


@pytest.mark.parametrize("schema", ["agentruns", "order"])
def test_OPS_02_J5_script_of_the_command_makes_what_an_upgrade_makes(
    empty_database_url: str, other_url: str, within: Within, replay: Replay, schema: str
) -> None:
    done = CliRunner().invoke(main, ["--schema", schema, "db", "sql"])
    assert (done.exit_code, done.stdout) == (0, migrations.sql(schema=schema))
    assert replay(empty_database_url, done.stdout) == ""
    within(other_url, partial(migrations.upgrade, schema=schema))
    read = partial(schema_of, schema=schema)
    assert within(empty_database_url, read) == within(other_url, read)


def test_OPS_02_scripts_of_parts_of_the_chain_follow_one_another(
    empty_database_url: str, other_url: str, within: Within, replay: Replay
) -> None:
    for start, end in (("base", "9"), ("9", "15"), ("15", "16")):
        assert replay(empty_database_url, migrations.sql(start, end)) == ""
    within(other_url, migrations.upgrade)
    assert within(empty_database_url, schema_of) == within(other_url, schema_of)


@pytest.mark.parametrize("per_revision", ["no", "yes"])
def test_OPS_02_script_of_a_host_makes_what_its_upgrade_makes(
    host: Config, other_url: str, within: Within, replay: Replay, per_revision: str
) -> None:
    host.set_main_option("per_revision", per_revision)
    host.output_buffer = script = StringIO()
    command.upgrade(host, "heads", sql=True)
    assert replay(other_url, script.getvalue()) == ""
    command.upgrade(host, "heads")
    read = partial(schema_of, versions="public")
    assert within(other_url, read) == within(str(host.get_main_option("url")), read)


def test_OPS_02_script_that_has_been_replayed_is_refused_and_changes_nothing(
    empty_database_url: str, within: Within, replay: Replay
) -> None:
    within(empty_database_url, partial(migrations.upgrade, to="15"))
    replay(empty_database_url, migrations.sql("15"))
    before = within(empty_database_url, schema_of)
    assert replay(empty_database_url, migrations.sql("15"), code=3).endswith("ERROR:  AR001\n")
    assert replay(empty_database_url, migrations.sql(), code=3).endswith("ERROR:  42P07\n")  # of the version table
    assert within(empty_database_url, schema_of) == before


def test_OPS_02_script_for_a_schema_that_is_behind_is_refused(
    empty_database_url: str, within: Within, replay: Replay
) -> None:
    within(empty_database_url, partial(migrations.upgrade, to="9"))
    before = within(empty_database_url, schema_of)
    assert replay(empty_database_url, migrations.sql("15"), code=3).endswith("ERROR:  AR002\n")
    assert within(empty_database_url, schema_of) == before
