"""Global options, help, and how a command ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner, Result

from agentruns.cli import COMMANDS, main
from agentruns.cli.options import Format, Settings, database_url_text, settings_of
from agentruns.cli.root import Group, RootGroup

seen: list[Settings] = []
raised: list[BaseException] = []


@click.group(cls=RootGroup)
def tool() -> None:
    """A tool."""


@tool.group(cls=Group)
def thing() -> None:
    """A thing."""


@thing.command()
@click.pass_context
def look(context: click.Context) -> None:
    seen.append(settings_of(context))


@thing.command()
def fail() -> NoReturn:
    raise raised.pop()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(tool, arguments)


def settings(*arguments: str) -> Settings:
    seen.clear()
    assert run(*arguments).exit_code == 0
    return seen.pop()


def test_without_options_the_defaults_hold() -> None:
    assert settings("thing", "look") == Settings(
        database_url_file=None,
        schema="agentruns",
        output_format=Format.TABLE,
        is_quiet=False,
        has_color=True,
        timeout=15.0,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--format", "json", "--schema", "other", "--quiet", "--no-color", "--timeout", "2.5", "thing", "look"),
        ("thing", "--format", "json", "--schema", "other", "--quiet", "look", "--no-color", "--timeout", "2.5"),
        ("thing", "look", "--format", "json", "--schema", "other", "--quiet", "--no-color", "--timeout", "2.5"),
    ],
)
def test_global_options_stand_anywhere(arguments: tuple[str, ...]) -> None:
    expected = Settings(schema="other", output_format=Format.JSON, is_quiet=True, has_color=False, timeout=2.5)
    assert settings(*arguments) == expected


def test_the_option_nearest_to_the_end_wins() -> None:
    assert settings("--schema", "one", "thing", "look", "--schema", "two").schema == "two"


@pytest.mark.parametrize("schema", ["public", "pg_own", "information_schema", "Upper", 'a"b', "a b", "", "x" * 49])
def test_a_bad_schema_name_is_wrong_usage(schema: str) -> None:
    result = run("thing", "look", "--schema", schema)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: An option is outside its bound")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("timeout", ["0", "-1", "nan", "soon", "86401"])
def test_a_bad_timeout_is_wrong_usage(timeout: str) -> None:
    assert run("thing", "look", "--timeout", timeout).exit_code == 2


def test_an_unknown_exception_leaves_no_traceback() -> None:
    raised.append(RuntimeError("secret"))
    result = run("--format", "json", "thing", "fail")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert json.loads(result.stderr)["error"]["message"] == "An unexpected error (RuntimeError)"


def test_an_interrupt_ends_with_130() -> None:
    raised.append(KeyboardInterrupt())
    assert run("thing", "fail").exit_code == 130


def test_the_file_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://file\n")
    monkeypatch.delenv("AGENTRUNS_DATABASE_URL", raising=False)
    assert database_url_text(Settings()) is None
    monkeypatch.setenv("AGENTRUNS_DATABASE_URL", "postgresql://environment")
    assert database_url_text(Settings()) == "postgresql://environment"
    assert database_url_text(Settings(database_url_file=file)) == "postgresql://file"


def test_a_missing_url_file_is_wrong_usage(tmp_path: Path) -> None:
    assert run("--database-url-file", str(tmp_path / "none"), "thing", "look").exit_code == 2


def test_the_help_names_every_command_and_global_option() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for word in (*COMMANDS, "--database-url-file", "--schema", "--format", "--quiet", "--no-color", "--timeout"):
        assert word in result.stdout


def test_an_unknown_command_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2


def test_the_help_imports_no_database_library() -> None:
    script = """
import sys
from agentruns.cli import main
try:
    main(["--help"])
except SystemExit as end:
    print(end.code, sorted({"sqlalchemy", "alembic", "asyncpg", "rich", "psutil", "asyncio"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.splitlines()[-1] == "0 []"


def test_version_states_package_schema_and_servers() -> None:
    result = CliRunner().invoke(main, ["version", "--format", "json"])
    assert json.loads(result.stdout) == {
        "package": "0.1.0",
        "schema_revision": "agentruns_0016",
        "supported_servers": ["16", "17", "18"],
    }
