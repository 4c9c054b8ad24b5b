"""What the commands do when all is well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import make_url

Command = Callable[..., Any]
RUNS = [f"01890000-0000-7000-8000-{number:012d}" for number in range(1, 104)]

_RUN = """
INSERT INTO agentruns.runs (tenant_id, run_id, thread_id, invocation_id, status, revision, changed_at,
  lifecycle_sequence, head_sequence, head_digest, head_recorded_at, fencing_epoch, superstep, checkpoint_digest,
  scheduler_ready_at)
SELECT 'acme', id, id, id, CASE WHEN n = 1 THEN 'active' ELSE 'succeeded' END, 1, now(), 1, 1,
  sha256('x'), now(), 1, 0, sha256('x'), CASE WHEN n = 1 THEN now() END
FROM unnest($1::uuid[]) WITH ORDINALITY AS u (id, n)
"""
_EVENT = """
INSERT INTO agentruns.run_events (tenant_id, run_id, sequence, event_id, recorded_at, epoch, kind, schema_digest,
  data, digest)
SELECT 'acme', id, 1, id, '2026-01-02T03:04:05.000006Z', 7, 'graph-node-attempt-started', sha256('x'), 'private',
  sha256('x')
FROM unnest($1::uuid[]) AS u (id)
"""
_ATTEMPT = """
INSERT INTO agentruns.node_attempts (tenant_id, run_id, superstep, node_id, attempt, attempt_id, sequence)
VALUES ('acme', $1, 0, 'compose', 1, $1, 1), ('acme', $1, 0, 'compose', 2, $1, 1)
"""


def fill(url: str) -> None:
    async def insert() -> None:
        target = make_url(url)
        host, port = str(target.query["host"]), int(str(target.query["port"]))
        connection = await asyncpg.connect(host=host, port=port, user=target.username, database=target.database)
        await connection.execute(_RUN, RUNS)
        await connection.execute(_EVENT, RUNS)
        await connection.execute(_ATTEMPT, RUNS[0])
        await connection.close()

    asyncio.run(insert())


def objects(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_upgrade_verify_history_and_downgrade(agentruns: Command, empty_database_url: str) -> None:
    def ask(*arguments: str) -> list[dict[str, object]]:
        ended = agentruns(*arguments, "--format", "json", "--quiet", url=empty_database_url)
        assert (ended.code, ended.err) == (0, "")
        return objects(ended.out)

    (upgraded,) = ask("db", "upgrade", "--to", "15")
    assert (upgraded["revision"], upgraded["newest"]) == ("agentruns_0015", 16)
    behind = agentruns("db", "verify", url=empty_database_url)
    assert behind.code == 6
    assert "found=agentruns_0015, wanted=agentruns_0016" in behind.err
    (head,) = ask("db", "upgrade")
    assert (head["number"], head["applied_by"]) == (16, "agentruns")
    assert ask("db", "upgrade") == [head]
    assert ask("db", "current") == [head]
    assert [row["number"] for row in ask("db", "history")] == list(range(1, 17))
    (report,) = ask("db", "verify", "--strict")
    assert (report["revision"], report["revisions"], report["newer"]) == ("agentruns_0016", 16, [])
    (below,) = ask("db", "downgrade", "--to", "14")
    assert below["number"] == 14
    (gone,) = ask("db", "downgrade", "--to", "0")
    assert gone["number"] is None
    assert agentruns("db", "current", url=empty_database_url).code == 6


def test_upgrade_into_a_schema_of_another_name(agentruns: Command, empty_database_url: str) -> None:
    assert agentruns("--schema", "other", "db", "upgrade", url=empty_database_url).code == 0
    assert agentruns("db", "verify", "--schema", "other", url=empty_database_url).code == 0
    assert agentruns("db", "verify", url=empty_database_url).code == 6


def test_the_url_may_stand_in_a_file_and_have_any_spelling(
    agentruns: Command, database_url: str, tmp_path: Path
) -> None:
    for number, spelling in enumerate(("postgres", "postgresql", "postgresql+asyncpg")):
        file = tmp_path / str(number)
        file.write_text(make_url(database_url).set(drivername=spelling).render_as_string() + "\n")
        assert agentruns("db", "verify", "--database-url-file", str(file), url="postgresql://nowhere:1/x").code == 0


def test_a_downgrade_never_destroys_evidence_unless_it_is_named(agentruns: Command, owner_url: str) -> None:
    fill(owner_url)
    ended = agentruns("db", "downgrade", "--to", "0", url=owner_url)
    assert ended.code == 4
    assert agentruns("db", "downgrade", "--to", "0", "--destroy-evidence", "other", url=owner_url).code == 4
    assert agentruns("db", "downgrade", "--to", "0", "--destroy-evidence", "agentruns", url=owner_url).code == 0


def test_sql_writes_the_script_without_a_database(agentruns: Command) -> None:
    whole = agentruns("db", "sql", url="postgresql://127.0.0.1:1/none")
    assert (whole.code, whole.err) == (0, "")
    assert whole.out.count("CREATE TABLE") > 20
    last = agentruns("db", "sql", "--from", "15", "--to", "16", url="postgresql://127.0.0.1:1/none")
    assert last.out.count('INSERT INTO "agentruns".applied_revisions') == 1


def test_runs_are_listed_by_hundreds(agentruns: Command, database_url: str) -> None:
    fill(database_url)
    first = agentruns("runs", "list", "--tenant", "acme", "--format", "json", url=database_url)
    assert [row["run_id"] for row in objects(first.out)] == RUNS[:100]
    assert first.err == f"There are more: --after {RUNS[99]}\n"
    second = agentruns("runs", "list", "--tenant", "acme", "--after", RUNS[99], "--format", "json", url=database_url)
    assert [row["run_id"] for row in objects(second.out)] == RUNS[100:]
    assert second.err == ""
    active = agentruns("runs", "list", "--tenant", "acme", "--status", "active", "--format", "json", url=database_url)
    (row,) = objects(active.out)
    assert (row["run_id"], row["status"], row["events"]) == (RUNS[0], "active", 1)
    other = agentruns("runs", "list", "--tenant", "other", "--format", "json", url=database_url)
    assert (other.code, other.out) == (0, "")


def test_a_run_is_shown_with_its_attempts_and_nothing_private(agentruns: Command, database_url: str) -> None:
    fill(database_url)
    ended = agentruns("runs", "show", "acme", RUNS[0], "--format", "json", url=database_url)
    (run,) = objects(ended.out)
    assert (run["run_id"], run["status"], run["lease_epoch"]) == (RUNS[0], "active", 1)
    attempts = run["attempts"]
    assert isinstance(attempts, list)
    assert [(each["node_id"], each["attempt"], each["epoch"], each["status"]) for each in attempts] == [
        ("compose", 1, 7, None),
        ("compose", 2, 7, None),
    ]
    assert attempts[0]["started_at"] == "2026-01-02T03:04:05.000006Z"
    table = agentruns("runs", "show", "acme", RUNS[0], url=database_url)
    assert table.out.count("compose") == 2
    assert "private" not in ended.out + table.out
    assert agentruns("runs", "show", "other", RUNS[0], url=database_url).code == 3


def test_without_a_url_a_command_has_an_embedded_server_for_as_long_as_it_runs(agentruns: Command, place: Path) -> None:
    upgraded = agentruns("db", "upgrade")
    assert upgraded.code == 0
    assert f"Starting the embedded PostgreSQL in {place}/data\n" in upgraded.err
    (status,) = objects(agentruns("server", "status", "--format", "json").out)
    assert (status["is_running"], status["data_dir"]) == (False, f"{place}/data")
    assert agentruns("db", "verify").code == 0


def test_a_server_is_started_found_and_stopped(agentruns: Command, place: Path) -> None:
    data = str(place / "data")
    (started,) = objects(agentruns("server", "start", "--data-dir", data, "--format", "json").out)
    (again,) = objects(agentruns("server", "start", "--data-dir", data, "--format", "json").out)
    assert again == started
    assert started["is_running"] is True
    url = agentruns("server", "url").out.strip()
    assert agentruns("db", "upgrade", url=url).code == 0
    quiet = agentruns("db", "verify")
    assert (quiet.code, quiet.err) == (0, "")
    (stopped,) = objects(agentruns("server", "stop", "--format", "json").out)
    assert (stopped["was_running"], stopped["is_running"]) == (True, False)
    (twice,) = objects(agentruns("server", "stop", "--format", "json").out)
    assert (twice["was_running"], twice["is_running"]) == (False, False)
