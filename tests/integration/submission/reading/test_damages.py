"""Rows that are missing, extra or misshapen are found."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from sqlalchemy import text

from agentruns.errors import (
    CorruptDataError,
)

pytestmark = pytest.mark.slow

Run = Callable[[Coroutine[Any, Any, Any]], Any]


#: Gives the run a lease as it might have one.
LEASED: Final = (
    "UPDATE runs SET fencing_epoch = 1, lease_attempt_id = '01980000-0000-7000-8000-000000000001',"
    " lease_acquired_at = changed_at, lease_renewed_at = changed_at,"
    " lease_expires_at = changed_at + interval '1 second'"
)
#: A story, the component that the finding names, if there is one, and what is done to the run.
DAMAGES: Final[list[tuple[str | None, ...]]] = [
    ("between", "run_checkpoints.digest", "UPDATE run_checkpoints SET digest = sha256('x') WHERE superstep = 0"),
    ("between", "chain", "UPDATE run_events SET digest = sha256('x') WHERE sequence = 4"),
    ("between", "run_checkpoints", "DELETE FROM run_checkpoints WHERE superstep = 0"),
    ("succeeded", "run_checkpoints", "DELETE FROM run_checkpoints WHERE superstep = 1"),
    ("between", "run_events", "DELETE FROM run_events WHERE sequence = 1"),
    ("between", "run_events", "DELETE FROM run_events WHERE sequence = 4"),
    ("between", "run_events", "DELETE FROM run_events WHERE sequence = 5"),
    ("between", "runs", "DELETE FROM runs"),
    ("between", "agent_admissions", "DELETE FROM agent_admissions"),
    ("between", "agent_submission_keys", "DELETE FROM agent_submission_keys"),
    ("cancelled", "run_outcomes", "DELETE FROM run_outcomes WHERE kind = 'outcome'"),
    ("cancelled", "run_outcomes", "DELETE FROM run_outcomes WHERE kind = 'cancellation'"),
    ("succeeded", "run_outcomes", "UPDATE run_outcomes SET kind = 'cancellation'"),
    ("waiting", "waits", "DELETE FROM run_waits WHERE kind = 'sleep'"),
    ("waiting", "waits", "DELETE FROM run_waits"),
    ("waiting_for_one", "waits", "UPDATE run_waits SET status = 'outstanding', settled_sequence = NULL"),
    ("cancelling_from_wait", "waits", "UPDATE run_waits SET status = 'outstanding', settled_sequence = NULL"),
    ("waiting", "run_waits.settled_sequence", "UPDATE run_waits SET settled_sequence = 9 WHERE kind = 'sleep'"),
    ("quarantined", "runs.quarantined_at", "DELETE FROM run_quarantines"),
    ("quarantined", "runs.quarantined_at", "UPDATE runs SET quarantined_at = NULL"),
    ("quarantined", "runs.lease_attempt_id", LEASED),
    ("between", "runs.fencing_epoch", "UPDATE runs SET fencing_epoch = 0"),
    ("between", "runs.lease_attempt_id", LEASED, "UPDATE runs SET lease_expires_at = NULL"),
    ("between", None, LEASED),
    ("between", "runs.lease_expires_at", LEASED, "UPDATE runs SET lease_expires_at = changed_at"),
    ("between", "runs.lease_expires_at", LEASED, "UPDATE runs SET lease_acquired_at = lease_expires_at"),
    ("between", "runs.lease_attempt_id", LEASED, "UPDATE runs SET lease_attempt_id = gen_random_uuid()"),
    ("between", "runs.lease_expires_at", LEASED, "UPDATE runs SET lease_expires_at = 'infinity'"),
    ("waiting", "runs.lease_attempt_id", LEASED),
    ("between", "runs.scheduler_ready_at", "UPDATE runs SET scheduler_ready_at = NULL"),
    (
        "between",
        "runs.scheduler_ready_at",
        "UPDATE runs SET scheduler_ready_at = scheduler_ready_at - interval '1 second'",
    ),
    ("succeeded", "runs.scheduler_ready_at", "UPDATE runs SET scheduler_ready_at = changed_at"),
    ("between", None, "UPDATE runs SET scheduler_not_before = scheduler_ready_at"),
    (
        "between",
        "runs.scheduler_not_before",
        "UPDATE runs SET scheduler_not_before = scheduler_ready_at - interval '1 s'",
    ),
    ("between", "runs.scheduler_not_before", LEASED, "UPDATE runs SET scheduler_not_before = now() + interval '1 d'"),
    ("succeeded", "runs.scheduler_not_before", "UPDATE runs SET scheduler_not_before = now()"),
    ("between", "status", "UPDATE runs SET status = 'pending'"),
    ("between", "runs.status", "UPDATE runs SET status = 'unheard'"),
    ("between", "runs.changed_at", "UPDATE runs SET changed_at = 'infinity'"),
    ("between", "runs.superstep", "UPDATE runs SET superstep = NULL, checkpoint_digest = NULL"),
    ("between", "runs.graph_definition_digest", "UPDATE runs SET graph_definition_digest = NULL"),
    ("between", "runs.agent_deadline_at", "UPDATE runs SET agent_deadline_at = NULL"),
    ("between", "status", "UPDATE runs SET lifecycle_sequence = 5"),
    ("between", "run_checkpoints", 'UPDATE run_checkpoints SET ready = \'["b", "a"]\' WHERE superstep = 1'),
    ("between", "run_checkpoints.ready", "UPDATE run_checkpoints SET ready = '\"b\"' WHERE superstep = 1"),
    ("between", "body", "UPDATE agent_admissions SET body = ''"),
    (
        "quarantined",
        "run_quarantines",
        (
            "INSERT INTO run_quarantines SELECT tenant_id, run_id,"
            " '01980000-0000-7000-8000-000000000001', quarantined_at,"
            " cause_kind, component, body, digest, epoch FROM run_quarantines"
        ),
    ),
    (
        "between",
        "runs.head_sequence",
        (
            "INSERT INTO run_events SELECT tenant_id, run_id, 9, event_id, recorded_at, epoch, kind,"
            " schema_digest, data, digest FROM run_events WHERE sequence = 5"
        ),
    ),
    (
        "between",
        "run_checkpoints.digest",
        (
            "INSERT INTO run_checkpoints SELECT tenant_id, run_id, 2, checkpoint_id, ready, state,"
            " digest, sequence FROM run_checkpoints WHERE superstep = 1"
        ),
    ),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: f"{each[0]}-{each[-1][:60]}")
def test_SUB_17_missing_extra_and_misshapen_rows_are_found(
    kit: Any, run: Run, tell: Any, damage: tuple[str | None, ...]
) -> None:
    name, component, *statements = damage
    changes = [text(each) for each in statements if each]

    async def work() -> None:
        async with (
            kit.runs() as runs,
            kit.engine(as_owner=True) as engine,
            engine.connect() as connection,
            connection.begin(),
        ):
            told = await tell(runs, name)
            shown = await runs.load(told.tenant_id, told.run_id)
            await tell.permit_damage(connection)
            await connection.execute(text("SET LOCAL search_path = agentruns"))
            for change in changes:
                assert (await connection.execute(change)).rowcount > 0
            if component is None:
                assert await runs.load(told.tenant_id, told.run_id, session=connection) == shown
                return
            with pytest.raises(CorruptDataError) as found:
                await runs.load(told.tenant_id, told.run_id, session=connection)
            assert (found.value.component, found.value.run_id) == (component, told.run_id)

    run(work())
