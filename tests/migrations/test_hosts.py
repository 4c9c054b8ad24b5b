"""A host's own Alembic project beside our branch: both chains in one environment, and comparisons that see one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config, main
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Column, Connection, Integer, MetaData, Table, text

from agentruns import migrations
from agentruns.errors import InvalidOptionError, RefusedError
from agentruns.migrations import environment
from agentruns.migrations.translate import translated
from agentruns.store.released import released_catalogue
from agentruns.store.verification.catalogue import read_catalogue

Within = Callable[[str, Callable[[Connection], Any]], Any]


def heads(connection: Connection, schema: str = "public") -> set[Any]:
    return set(connection.execute(text(f"SELECT version_num FROM {schema}.alembic_version")).scalars())  # noqa: S608


def test_J4_two_labelled_heads_move_apart(host: Config, empty_database_url: str, within: Within) -> None:
    command.upgrade(host, "heads")
    assert within(empty_database_url, heads) == {"host_0001"}  # it depends on the other head, which it stands for
    directory = ScriptDirectory.from_config(host)
    assert set(directory.get_heads()) == {"host_0001", "agentruns_0016"}
    found = within(empty_database_url, lambda c: read_catalogue(c, schema="agentruns"))
    assert found == released_catalogue("agentruns")
    command.downgrade(host, "host@-1")
    assert within(empty_database_url, heads) == {"agentruns_0016"}
    command.downgrade(host, "agentruns@base")
    assert within(empty_database_url, heads) == set()
    command.upgrade(host, "agentruns@head")
    assert within(empty_database_url, heads) == {"agentruns_0016"}


CHAIN = {
    "app_0001": """
from alembic import op
revision, down_revision, branch_labels = "app_0001", None, ("app",)
def upgrade():
    op.execute("CREATE TABLE customers ()")
def downgrade():
    op.execute("DROP TABLE customers")
""",
    "app_0002": """
from alembic import op
revision, down_revision = "app_0002", "app_0001"
def upgrade():
    op.execute("CREATE TABLE invoices ()")
def downgrade():
    op.execute("DROP TABLE invoices")
""",
}


@pytest.fixture
def app(host: Config, tmp_path: Path) -> Config:
    """The host with two revisions that do not depend on ours."""
    (tmp_path / "versions" / "0001_orders.py").unlink()
    for name, source in CHAIN.items():
        (tmp_path / "versions" / f"{name}.py").write_text(source)
    return host


def test_J4_hosted_chains_move_apart_in_one_table(app: Config, empty_database_url: str, within: Within) -> None:
    seen = []
    for move, target in (
        (command.upgrade, "app_0001"),
        (command.upgrade, "agentruns@head"),
        (command.upgrade, "app@head"),
        (command.downgrade, "app@-1"),
    ):
        move(app, target)
        seen.append(within(empty_database_url, heads))
    ours = "agentruns_0016"
    assert seen == [{"app_0001"}, {"app_0001", ours}, {"app_0002", ours}, {"app_0001", ours}]
    assert set(ScriptDirectory.from_config(app).get_heads()) == {"app_0002", ours}


def test_J4_standalone_chains_have_a_table_and_a_head_each(
    app: Config, empty_database_url: str, within: Within, tmp_path: Path
) -> None:
    app.set_main_option("version_locations", str(tmp_path / "versions"))
    command.upgrade(app, "app_0001")
    within(empty_database_url, migrations.upgrade)
    command.upgrade(app, "heads")
    command.downgrade(app, "-1")
    ours = within(empty_database_url, partial(heads, schema="agentruns"))
    assert (within(empty_database_url, heads), ours) == ({"app_0001"}, {"agentruns_0016"})
    within(empty_database_url, lambda connection: migrations.downgrade(connection, to="15"))
    ours = within(empty_database_url, partial(heads, schema="agentruns"))
    assert (within(empty_database_url, heads), ours) == ({"app_0001"}, {"agentruns_0015"})
    assert ScriptDirectory.from_config(app).get_heads() == ["app_0002"]
    assert environment.scripts().get_heads() == ["agentruns_0016"]


def test_J3_check_is_empty_and_creates_no_table_of_ours(host: Config) -> None:
    command.upgrade(host, "heads")
    command.check(host)


def test_evidence_of_a_host_goes_only_by_name(host: Config, empty_database_url: str, within: Within) -> None:
    command.upgrade(host, "agentruns@head")
    limit = "INSERT INTO agentruns.tenant_limits VALUES ('t', 5, now())"
    within(empty_database_url, lambda c: c.execute(text(limit)))
    with pytest.raises(RefusedError), translated("agentruns"):
        command.downgrade(host, "agentruns@base")
    host.cmd_opts = type("Options", (), {"x": ["agentruns_destroy=agentruns"]})()
    command.downgrade(host, "agentruns@base")
    assert within(empty_database_url, heads) == set()


def test_standalone_moves_to_hosted_by_a_stamp(host: Config, empty_database_url: str, within: Within) -> None:
    within(empty_database_url, migrations.upgrade)
    command.stamp(host, "agentruns@head")
    command.upgrade(host, "heads")
    assert within(empty_database_url, heads) == {"host_0001"}


@pytest.mark.parametrize("include_schemas", [False, True])
@pytest.mark.parametrize("default", ["public", "agentruns"])
def test_J3_comparison_sees_the_host_alone(
    database_url: str, within: Within, include_schemas: Any, default: str
) -> None:
    kept, dropped = MetaData(), MetaData()
    Table("orders", kept, Column("id", Integer, primary_key=True))

    def work(connection: Connection) -> tuple[Any, Any]:
        connection.execute(text(f"SET LOCAL search_path = {default}"))
        connection.execute(text("CREATE TABLE orders (id integer PRIMARY KEY)"))
        connection.dialect.default_schema_name = default
        with EnvironmentContext(Config(), environment.scripts()) as env:
            env.configure(connection=connection, include_schemas=include_schemas, include_name=migrations.include_name)
            context = env.get_context()
            return compare_metadata(context, kept), compare_metadata(context, dropped)

    nothing, removal = within(database_url, work)
    assert nothing == []
    assert [(change[0], change[1].name) for change in removal] == [("remove_table", "orders")]


@pytest.mark.parametrize(
    ("name", "kind", "parents", "expected"),
    [
        ("agentruns", "schema", {}, False),
        ("agentruns2", "schema", {}, True),
        (None, "schema", {}, True),
        ("runs", "table", {"schema_name": "agentruns"}, False),
        ("runs", "table", {"schema_name": None}, True),
        ("runs", "table", {"schema_name": "host"}, True),
        ("run_id", "column", {"schema_name": "agentruns", "table_name": "runs"}, False),
        ("ix_runs_live", "index", {"schema_name": "agentruns", "table_name": "runs"}, False),
        ("run_id", "column", {"schema_name": None, "table_name": "runs"}, True),
    ],
)
def test_include_name_hides_our_schema_only(name: str | None, kind: Any, parents: Any, expected: Any) -> None:
    assert migrations.include_name(name, kind, parents) is expected


def test_include_name_knows_another_schema() -> None:
    assert migrations.include_name("agentruns", "schema", {}, schema="other") is True
    assert migrations.include_name("runs", "table", {"schema_name": "other"}, schema="other") is False


def test_check_accepts_our_own_locations_and_a_hosts(host: Config) -> None:
    migrations.check()
    migrations.check(host)


@pytest.mark.parametrize(
    ("locations", "separator"),
    [
        ("{here}/versions", "newline"),
        ("{here}/versions\nagentruns.migrations.versions:", "os"),
        ("{here}/gone\nagentruns.migrations.versions:", "newline"),
        ("{here}/versions\nagentruns.migrations.version:", "newline"),
    ],
)
def test_check_refuses_what_alembic_skips_in_silence(
    host: Config, tmp_path: Path, locations: str, separator: str
) -> None:
    host.set_main_option("version_locations", locations.format(here=tmp_path))
    host.set_main_option("path_separator", separator)
    with pytest.raises(InvalidOptionError) as caught:
        migrations.check(host)
    assert caught.value.option == "version_locations"


def test_package_is_not_shadowed_by_the_folder() -> None:
    import alembic  # noqa: PLC0415

    assert alembic.__file__ is not None
    assert "site-packages" in alembic.__file__


def test_environment_of_the_checkout_upgrades_and_finds_no_difference(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setenv("AGENTRUNS_DATABASE_URL", empty_database_url)
    for arguments in ("upgrade heads", "check", "downgrade agentruns@base", "upgrade heads --sql"):
        capsys.readouterr()
        main(arguments.split())
    assert capsys.readouterr().out == migrations.sql()


def test_environment_without_a_configuration_is_ours_alone() -> None:
    assert environment.scripts().get_heads() == ["agentruns_0016"]
    assert environment.revision_id("7") == "agentruns_0007"
    with pytest.raises(CommandError):
        migrations.sql("base", "agentruns_0099")
