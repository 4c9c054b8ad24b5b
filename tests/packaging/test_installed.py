"""What is installed here, editable or from a wheel, is whole: the same tests pass in both."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distribution, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

import agentruns
from agentruns import migrations
from agentruns.migrations.environment import scripts

REVISIONS = [f"agentruns_{number:04d}" for number in range(1, 17)]


@pytest.fixture
def is_checkout(checkout: Path) -> bool:
    """Whether what is installed here stands for the checkout: editable, or found from within it."""
    found = distribution("agentruns")
    record = json.loads(found.read_text("direct_url.json") or "{}")
    return bool(record.get("dir_info", {}).get("editable")) or Path(str(found.locate_file(""))) == checkout


def test_what_is_imported_is_what_is_installed(checkout: Path, is_checkout: Any) -> None:
    assert agentruns.__file__ is not None
    imported = Path(agentruns.__file__)
    assert imported.is_relative_to(checkout / "agentruns") is is_checkout
    assert ("site-packages" in imported.parts) is not is_checkout


def test_Q1_it_says_that_it_is_typed() -> None:
    assert files("agentruns").joinpath("py.typed").is_file()


def test_the_revisions_are_found_by_their_location() -> None:
    migrations.check()
    assert [revision.revision for revision in scripts().walk_revisions()] == REVISIONS[::-1]


def test_a_host_finds_the_revisions_beside_its_own(tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{tmp_path / 'versions'}\n{migrations.LOCATION}")
    migrations.check(config)
    assert ScriptDirectory.from_config(config).get_heads() == [REVISIONS[-1]]


def test_the_schemas_are_readable(checkout: Path) -> None:
    found = files("agentruns.schemas").iterdir()
    documents = {entry.name: entry.read_bytes() for entry in found if entry.name.endswith(".json")}
    assert documents == {path.name: path.read_bytes() for path in (checkout / "schemas").glob("*.json")}
    assert {json.loads(data)["$schema"] for data in documents.values()} == {
        "https://json-schema.org/draft/2020-12/schema"
    }


def test_the_command_line_starts() -> None:
    program = Path(sys.executable).parent / "agentruns"
    done = subprocess.run(  # noqa: S603 - our own command
        [program, "version", "--format", "json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "package": version("agentruns"),
        "schema_revision": "agentruns_0016",
        "supported_servers": ["16", "17", "18"],
    }
