"""``agentruns grants``: the script, the transaction and the audit, and how each of them ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import asyncpg
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import make_url

from agentruns.cli import main

Command = Callable[..., Result]


@pytest.fixture
def grants(migrated_url: str) -> Command:
    """Run ``agentruns grants`` in this process."""

    def run(*arguments: str, url: str = migrated_url) -> Result:
        done = CliRunner(env={"AGENTRUNS_DATABASE_URL": url}).invoke(main, ["grants", *arguments])
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return done

    return run


def named(names: dict[str, str]) -> list[str]:
    return [part for job in ("runtime", "operator", "reader", "retention") for part in (f"--{job}", names[job])]


def run_script(url: str, script: str) -> None:
    async def work() -> None:
        target = make_url(url)
        host, port = str(target.query["host"]), int(str(target.query["port"]))
        connection = await asyncpg.connect(host=host, port=port, user=target.username, database=target.database)
        await connection.execute(script)
        await connection.close()

    asyncio.run(work())


def test_apply_then_audit(grants: Command, role_names: dict[str, str]) -> None:
    before = grants("audit", *named(role_names))
    assert before.exit_code == 5
    assert "missing" in before.stdout
    applied = grants("apply", *named(role_names))
    assert (applied.exit_code, applied.stderr) == (0, "")
    assert grants("apply", *named(role_names)).exit_code == 0
    after = grants("audit", *named(role_names), "--format", "json")
    assert (after.exit_code, after.stdout) == (0, "")


def test_the_printed_script_does_what_apply_does(
    grants: Command, role_names: dict[str, str], migrated_url: str
) -> None:
    printed = grants("print", *named(role_names))
    assert printed.exit_code == 0
    assert printed.stdout.startswith("BEGIN;\nSELECT pg_advisory_xact_lock(")
    assert printed.stdout.endswith("SET search_path = '';\nCOMMIT;\n")
    assert grants("audit", *named(role_names)).exit_code == 5
    run_script(migrated_url, printed.stdout)
    assert grants("audit", *named(role_names)).exit_code == 0
    document = json.loads(grants("print", *named(role_names), "--format", "json").stdout)
    script = "\n".join(f"{line};" for line in ["BEGIN", *document["statements"], "COMMIT"])
    assert (f"{script}\n", document["for_the_dba"]) == (printed.stdout, [])
    applied = json.loads(grants("apply", *named(role_names), "--format", "json").stdout)
    assert applied["statements"] == document["statements"]


def test_findings_are_a_line_each(grants: Command, role_names: dict[str, str], migrated_url: str) -> None:
    reader = role_names["reader"]
    options = ("--reader", reader, "--evidence")
    assert grants("apply", *options).exit_code == 0
    run_script(migrated_url, f'GRANT DELETE ON agentruns.runs TO "{reader}"')
    found = grants("audit", *options, "--format", "json")
    assert found.exit_code == 5
    assert [json.loads(line) for line in found.stdout.splitlines()] == [
        {"role": reader, "problem": "excess", "subject": "DELETE on runs"}
    ]
    without = grants("audit", "--reader", reader, "--format", "json")
    assert len(without.stdout.splitlines()) == 40


def test_lines_for_the_dba_are_printed_and_not_run(
    grants: Command, role_names: dict[str, str], migrated_url: str
) -> None:
    migrator = make_url(migrated_url).set(username="agentruns_owner").render_as_string(hide_password=False)
    runtime = ("--runtime", role_names["runtime"])
    printed, applied = grants("print", *runtime, url=migrator), grants("apply", *runtime, url=migrator)
    lines = applied.stdout.splitlines()[-6:]
    assert (applied.exit_code, applied.stderr) == (0, "For somebody who may alter the roles:\n")
    assert lines[0].startswith('ALTER ROLE "we""ird role 100%s :x \\ Ä ')
    assert printed.stdout.splitlines()[-8:] == [
        "COMMIT;",
        "-- For somebody who may alter the roles:",
        *(f"-- {line}" for line in lines),
    ]
    found = grants("audit", *runtime)
    assert (found.exit_code, found.stdout.count("is not what apply sets")) == (5, 6)
    run_script(migrated_url, "\n".join(lines))
    assert grants("audit", *runtime).exit_code == 0


def test_4_for_roles_that_are_unfit(grants: Command, role_names: dict[str, str]) -> None:
    for command in ("print", "apply", "audit"):
        ended = grants(command, "--runtime", "nobody")
        assert (ended.exit_code, ended.stdout) == (4, "")
        assert ended.stderr == (
            "Error: Roles or ownership are not what grants need (reason=unfit_for_grants, found=nobody: absent, "
            "there is no such role): change what was found, and repeat\n"
        )
    twice = grants("apply", "--runtime", role_names["reader"], "--reader", role_names["reader"])
    assert twice.exit_code == 4


def test_2_without_a_role(grants: Command) -> None:
    assert grants("audit").exit_code == 2
    assert grants("apply", "--evidence", "--runtime", "somebody").exit_code == 2


@pytest.mark.parametrize("name", ["", "x" * 64, "ä" * 32, "\udcff"])
def test_2_for_what_names_no_role(grants: Command, name: str) -> None:
    for command in ("print", "apply", "audit"):
        ended = grants(command, "--reader", name)
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert ended.stderr == (
            f"Error: An option is outside its bound (type_name=option, reason=out_of_range, option=reader, "
            f"value={ascii(name)[:80]}, bound=the name of a role, 1 to 63 bytes): choose a value within the bound\n"
        )
    assert grants("audit", "--reader", "x" * 63).exit_code == 4


def test_6_without_a_schema(grants: Command, role_names: dict[str, str], empty_database_url: str) -> None:
    for command in ("print", "apply", "audit"):
        assert grants(command, "--runtime", role_names["runtime"], url=empty_database_url).exit_code == 6
