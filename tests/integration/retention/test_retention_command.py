"""``agentruns retention`` as a person runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import frozen
from click.testing import CliRunner
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.cli import main

KEEPS = ("--keep-succeeded", "1h", "--keep-failed", "1h", "--keep-cancelled", "1h", "--retry-guarantee", "1h")
TENANT = ("--tenant", "tenant-a")
JSON = ("--format", "json")


@frozen
class Ended:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Ended]


@pytest.fixture
def retention(archive: Any) -> Command:
    """Run ``agentruns retention`` in this process."""

    def run(*arguments: str, role: str = "") -> Ended:
        url = make_url(archive.url)
        shown = (url.set(username=role) if role else url).render_as_string(hide_password=False)
        done = CliRunner(env={"AGENTRUNS_DATABASE_URL": shown}).invoke(main, ("retention", *arguments))
        assert done.exception is None or isinstance(done.exception, SystemExit)
        return Ended(done.exit_code, done.stdout, done.stderr)

    return run


def test_plan_counts_and_changes_nothing(archive: Any, sample: Any, retention: Command, role: str) -> None:
    statuses = ("succeeded", "succeeded", "failed", "cancelled", "active")
    archive.write(*(sample(status=status, events=7) for status in statuses), sample(quarantined_at=sample().since))
    archive.write(sample(tenant="b"), sample(tenant="c", status="active"))
    before = archive.everything()
    of_a = {"tenant_id": "tenant-a", "succeeded": 2, "failed": 1, "cancelled": 1, "quarantined": 0, "event_count": 28}
    of_b = {"tenant_id": "b", "succeeded": 1, "failed": 0, "cancelled": 0, "quarantined": 0, "event_count": 1}
    ended = retention("plan", *TENANT, *KEEPS, *JSON, role=role)
    assert (ended.code, ended.lines, ended.err) == (0, [of_a], "")
    assert retention("plan", "--all-tenants", *KEEPS, *JSON, role=role).lines == [of_b, of_a]
    found = retention("plan", *TENANT, *KEEPS, "--include-quarantined", *JSON, role=role).lines
    assert found == [of_a | {"quarantined": 1, "event_count": 29}]
    table = retention("plan", *TENANT, *KEEPS).out.splitlines()
    assert table[-2].split() == ["tenant-a", "2", "1", "1", "0", "28"]
    assert archive.everything() == before


def test_remove_removes_and_receipts_prove_it(archive: Any, sample: Any, retention: Command, role: str) -> None:
    archive.write(sample(), sample(status="failed"), sample(status="active"), sample(tenant="b"))
    ended = retention("remove", "--yes", *TENANT, *KEEPS, *JSON, role=role)
    (document,) = ended.lines
    size = document.pop("bytes")
    assert (ended.code, document) == (0, {"runs": 2, "rows": 36, "batches": 1, "held": [], "complete": True})
    assert ended.err == "tenant-a: removed 2 runs, 36 rows\n"
    again = retention("remove", "--yes", *TENANT, *KEEPS, *JSON, "--quiet", role=role)
    assert (again.code, again.lines[0]["runs"], again.err) == (0, 0, "")
    assert retention("remove", "--yes", "--all-tenants", *KEEPS, *JSON, role=role).lines[0]["runs"] == 1
    (receipt,) = retention("receipts", *TENANT, *JSON).lines
    assert (receipt["run_count"], receipt["row_count"], receipt["byte_count"]) == (2, 36, size)
    assert json.loads(receipt["policy"])["keep_failed"] == "3600000000"
    assert receipt["runs_digest"].startswith("sha256:")
    assert receipt["removed_at"].endswith("Z")
    assert "run count" in retention("receipts", *TENANT).out


def test_held_runs_are_named(archive: Any, sample: Any, retention: Command) -> None:
    held, free = sample(), sample()
    archive.write(held, free, bare=True)
    archive.execute(
        'CREATE TABLE public.holds (tenant_id text COLLATE "C", run_id uuid,'
        " CONSTRAINT fk_holds FOREIGN KEY (tenant_id, run_id) REFERENCES agentruns.runs)"
    )
    archive.execute("INSERT INTO public.holds VALUES (:tenant_id, :run_id)", **held.key)
    ended = retention("remove", "--yes", *TENANT, *KEEPS, *JSON)
    assert ended.code == 0
    assert (ended.lines[0]["runs"], ended.lines[0]["held"]) == (
        1,
        [{**held.key, "reason": "referenced", "constraint": "fk_holds"}],
    )
    assert f"tenant-a: run {held.run_id} stays, referenced" in ended.err
    table = retention("remove", "--yes", *TENANT, *KEEPS)
    assert "fk_holds" in table.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("remove", *TENANT, *KEEPS), "say --yes"),
        (("remove", "--yes", *KEEPS), "--all-tenants"),
        (("remove", "--yes", "--all-tenants", *TENANT, *KEEPS), "--all-tenants"),
        (("plan", *KEEPS), "--all-tenants"),
        (("remove", "--yes", *TENANT), "--keep-succeeded"),
        (("remove", "--yes", *TENANT, *KEEPS[:4]), "--keep-cancelled"),
        (("remove", "--yes", *TENANT, *KEEPS[:6]), "keep_succeeded"),
        (("remove", "--yes", *TENANT, *KEEPS[:-1], "59m"), "retry_guarantee"),
        (("remove", "--yes", *TENANT, *KEEPS[:-1], "tomorrow"), "no duration"),
        (("remove", "--yes", *TENANT, *KEEPS[:-1], ""), "no duration"),
        (("remove", "--yes", "--tenant", "a b", *KEEPS), "wanted 1 to 128 of the characters"),
        (("receipts",), "--tenant"),
    ],
)
def test_Q4_what_was_not_said_is_refused(
    archive: Any, sample: Any, retention: Command, arguments: tuple[str, ...], says: str
) -> None:
    archive.write(sample())
    before = archive.everything()
    ended = retention(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err
    assert archive.everything() == before


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90d", timedelta(days=90)),
        ("36h", timedelta(hours=36)),
        ("1d12h30m5s", timedelta(days=1, hours=12, minutes=30, seconds=5)),
        ("7200s", timedelta(hours=2)),
    ],
)
def test_durations(archive: Any, sample: Any, retention: Command, written: str, meant: timedelta) -> None:
    archive.write(sample(since=sample().since - meant))
    keeps = ("--keep-succeeded", written, *KEEPS[2:])
    assert retention("remove", "--yes", *TENANT, *keeps, *JSON).code == 0
    (receipt,) = retention("receipts", *TENANT, *JSON).lines
    assert json.loads(receipt["policy"])["keep_succeeded"] == str(meant // timedelta(microseconds=1))


def test_6_for_a_role_that_may_not_delete(archive: Any, sample: Any, retention: Command, role: str) -> None:
    archive.write(sample())
    archive.execute(f"REVOKE DELETE ON agentruns.runs FROM {role}")
    before = archive.everything()
    ended = retention("remove", "--yes", *TENANT, *KEEPS, role=role)
    assert (ended.code, ended.out) == (6, "")
    assert archive.everything() == before


def test_8_where_somebody_holds_a_run_and_the_next_one_goes_on(archive: Any, sample: Any, retention: Command) -> None:
    held, free = sample(), sample()
    archive.write(held, free, bare=True)
    connection = create_async_engine(archive.url, poolclass=NullPool).connect()

    async def begin() -> None:
        await connection.start()
        query = text("SELECT 1 FROM agentruns.runs WHERE run_id = :run_id FOR KEY SHARE")
        await connection.execute(query, {"run_id": held.run_id})

    archive.run(begin())
    ended = retention("remove", "--yes", *TENANT, *KEEPS, *JSON)
    archive.run(connection.close())
    (document,) = ended.lines
    assert (ended.code, document["runs"], document["complete"]) == (8, 1, False)
    assert document["held"] == [{**held.key, "reason": "locked", "constraint": ""}]
    assert ended.err.splitlines() == [
        "tenant-a: removed 1 runs, 1 rows",
        f"tenant-a: run {held.run_id} stays, locked",
        "Somebody else holds runs that may go: run the command again",
    ]
    again = retention("remove", "--yes", *TENANT, *KEEPS, *JSON)
    assert (again.code, again.lines[0]["runs"], again.lines[0]["complete"]) == (0, 1, True)


def test_8_when_it_is_stopped_and_the_next_one_goes_on(archive: Any, sample: Any, retention: Command) -> None:
    first = sample().since - timedelta(hours=10)
    samples = [sample(since=first + timedelta(seconds=place), events=25_000) for place in range(4)]
    archive.write(*samples)
    command = ["retention", "remove", "--yes", *TENANT, *KEEPS, *JSON, "--timeout", "120"]
    script = [sys.executable, "-c", "from agentruns.cli import main; main()", *command]
    environment = {**os.environ, "AGENTRUNS_DATABASE_URL": archive.url}

    async def work() -> tuple[int | None, str, str]:
        async with create_async_engine(archive.url, poolclass=NullPool).connect() as holder:
            query = text("SELECT 1 FROM agentruns.agent_admissions WHERE run_id = :run_id FOR KEY SHARE")
            await holder.execute(query, {"run_id": samples[0].run_id})
            process = subprocess.Popen(  # noqa: ASYNC220, S603  # our own command
                script, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            waiting = text(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            async with create_async_engine(archive.url, poolclass=NullPool).connect() as admin, asyncio.timeout(60):
                while not (await admin.execute(waiting)).first():  # it happens in another process
                    await admin.rollback()
                    await asyncio.sleep(0.02)
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            said = process.stderr.readline()
        out, errors = await asyncio.to_thread(process.communicate, timeout=60)
        return process.returncode, out, said + errors

    code, out, errors = archive.run(work())
    assert code == 8
    (document,) = (json.loads(line) for line in out.splitlines())
    assert (document["runs"], document["batches"], document["complete"]) == (2, 1, False)
    assert errors.splitlines() == [
        "SIGINT: stopping after the batch under way; a second signal interrupts it",
        "tenant-a: removed 2 runs, 36 rows",
    ]
    assert archive.left() == {each.run_id for each in samples[2:]}
    assert retention("remove", "--yes", *TENANT, *KEEPS, *JSON).lines[0]["runs"] == 2
