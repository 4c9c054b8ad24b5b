"""Every assertion finds the fault that is planted for it, at its place; none of them is one that cannot fail."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from attrs import frozen
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.testing import invariants
from agentruns.testing.invariants import ASSERTIONS, BrokenLawError

#: An id that stands for nothing.
ELSEWHERE = "01980000-0000-7000-8000-00000000ffff"
LEASE = (
    f"fencing_epoch = greatest(fencing_epoch, 1), lease_attempt_id = '{ELSEWHERE}', lease_acquired_at = now(),"
    " lease_renewed_at = now(), lease_expires_at = now() + interval '1 day'"
)
SLOT = (
    "INSERT INTO agentruns.tenant_slots (tenant_id, slot, run_id, fencing_epoch, serial)"
    " VALUES ('tenant-a', {slot}, :run_id, 1, 1)"
)
CALL = (
    "INSERT INTO agentruns.{kind}_invocations (tenant_id, run_id, invocation_id, superstep, node_id, {kind}_name,"
    " {kind}_version, intent, status, number{more}) VALUES ('tenant-a', :run_id, '" + ELSEWHERE + "', 0, 'decide',"
    " 'c', '1.0.0', '{{}}', 'executing', 1{values})"
)
SHARD = (
    "INSERT INTO agentruns.scheduler_fairness_shards (shard_id, policy, policy_digest, cycle_length, next_slot,"
    " next_sequence) VALUES ('s', '{{}}', sha256('x'), 4, {slot}, {sequence})"
)
TURN = (
    "INSERT INTO agentruns.scheduler_fairness_reservations (shard_id, reservation_id, sequence, slot, reserved_at)"
    f" VALUES ('s', '{ELSEWHERE}', 6, 3, now())"
)
STRAY = (
    "INSERT INTO agentruns.node_attempts (tenant_id, run_id, superstep, node_id, attempt, attempt_id, sequence)"
    f" VALUES ('tenant-a', '{ELSEWHERE}', 0, 'decide', 1, '{ELSEWHERE}', 2)"
)


@frozen
class Plant:
    """A fault, and where it is found.

    Attributes:
        check: the name of the assertion.
        state: of the run that it is planted in.
        sql: statements that damage, of which ``WHERE it`` is about the run.
        place: of the first finding.
    """

    check: str
    state: str
    sql: str
    label: str
    place: str

    @property
    def name(self) -> str:
        return f"{self.check}-{self.place}"


def event(sequence: int, change: str) -> str:
    return f"UPDATE agentruns.run_events SET {change} WHERE it AND sequence = {sequence}"


def said(sequence: int, before: str, after: str) -> str:
    change = f"data = convert_to(replace(convert_from(data, 'UTF8'), '{before}', '{after}'), 'UTF8')"
    return event(sequence, change)


def row(change: str) -> str:
    return f"UPDATE agentruns.runs SET {change} WHERE it"


# In the run that succeeded: 1 is the admission, 2 the start and 3 the end of `decide`, 4 the barrier; 5 6 7 are those
# of `work`, 8 and 9 of `finish`, and 10 is the end.
PLANTS = [
    # submission
    Plant(
        "assert_admissions_are_whole",
        "queued",
        "DELETE FROM agentruns.agent_submission_keys WHERE it",
        "SUB-13",
        "agent_submission_keys[origin=admitted]",
    ),
    Plant(
        "assert_admissions_are_whole",
        "queued",
        "DELETE FROM agentruns.run_checkpoints WHERE it",
        "SUB-13",
        "run_checkpoints[superstep=0]",
    ),
    Plant(
        "assert_one_key_one_submission",
        "queued",
        "UPDATE agentruns.agent_submission_keys SET submission_digest = sha256('x') WHERE it",
        "SUB-3",
        "agent_submission_keys[origin=admitted].submission_digest",
    ),
    Plant(
        "assert_loads_believe_their_runs",
        "queued",
        "UPDATE agentruns.agent_admissions SET agent_name = 'x' WHERE it",
        "SUB-17",
        "agent_admissions.agent_name",
    ),
    # ledger
    Plant(
        "assert_runs_fold",
        "succeeded",
        "UPDATE agentruns.run_checkpoints SET state = '[1]' WHERE it AND superstep = 1",
        "GRA-6",
        "run_checkpoints[sequence=4]",
    ),
    Plant("assert_runs_fold", "succeeded", row("thread_id = run_id"), "LED-1", "runs.thread_id"),
    Plant(
        "assert_events_have_their_rows",
        "succeeded",
        "DELETE FROM agentruns.node_attempts WHERE it AND superstep = 1",
        "LED-1",
        "node_attempts[sequence=5]",
    ),
    Plant(
        "assert_events_have_their_rows",
        "succeeded",
        "UPDATE agentruns.node_results SET status = 'failed' WHERE it AND superstep = 1",
        "LED-1",
        "node_results[sequence=6].status",
    ),
    Plant(
        "assert_events_have_their_rows",
        "succeeded",
        "UPDATE agentruns.run_checkpoints SET superstep = 9 WHERE it AND superstep = 2",
        "LED-1",
        "run_checkpoints[sequence=7].superstep",
    ),
    Plant(
        "assert_events_have_their_rows",
        "succeeded",
        "UPDATE agentruns.run_outcomes SET sequence = 9 WHERE it",
        "LED-1",
        "run_outcomes[sequence=9]",
    ),
    Plant(
        "assert_events_have_their_rows",
        "queued",
        "UPDATE agentruns.agent_admissions SET admission_digest = sha256('x') WHERE it",
        "LED-1",
        "agent_admissions[sequence=1].admission_digest",
    ),
    Plant(
        "assert_events_have_their_rows",
        "waiting",
        "DELETE FROM agentruns.run_waits WHERE it AND status = 'fired'",
        "LED-1",
        "run_waits[sequence=4 wait_id=…]",
    ),
    Plant("assert_run_rows_stand_at_their_heads", "succeeded", row("superstep = 9"), "LED-1", "runs.superstep"),
    Plant("assert_run_rows_stand_at_their_heads", "failed", row("head_sequence = 3"), "LED-1", "runs.head_sequence"),
    Plant(
        "assert_events_are_chained",
        "succeeded",
        event(3, f"event_id = '{ELSEWHERE}'"),
        "LED-2",
        "run_events[sequence=3].digest",
    ),
    Plant(
        "assert_bodies_hash_to_their_digests",
        "succeeded",
        "UPDATE agentruns.node_results SET body = '{}' WHERE it AND superstep = 0",
        "LED-2",
        "node_results[superstep=0 node_id=decide attempt=1].body",
    ),
    Plant(
        "assert_bodies_hash_to_their_digests",
        "waiting",
        "UPDATE agentruns.run_waits SET registration = '{}' WHERE it AND status = 'outstanding'",
        "LED-2",
        "run_waits[wait_id=…].registration",
    ),
    Plant(
        "assert_calls_stand_as_their_events_say",
        "leased",
        CALL.format(kind="model", more="", values=""),
        "LED-2",
        "model_invocations.invocation_id",
    ),
    Plant(
        "assert_sequences_are_contiguous",
        "succeeded",
        "DELETE FROM agentruns.run_events WHERE it AND sequence = 3",
        "LED-16",
        "run_events[sequence=4].sequence",
    ),
    Plant(
        "assert_time_never_falls",
        "succeeded",
        event(3, "recorded_at = recorded_at - interval '1 day'"),
        "LED-16",
        "run_events[sequence=3].recorded_at",
    ),
    Plant(
        "assert_events_satisfy_their_documents",
        "succeeded",
        said(4, '"superstep":"0"', '"superstep":"-1"'),
        "LED-21",
        "run_events[sequence=4]",
    ),
    Plant("assert_rows_belong_to_runs", "queued", STRAY, "OPS-9", "node_attempts"),
    Plant(
        "assert_definitions_are_what_their_digests_say",
        "queued",
        "UPDATE agentruns.graph_definitions SET definition_digest = sha256('x')",
        "GRA-1",
        "graph_definitions[name=sample-graph version=1.0.0].definition_digest",
    ),
    # leases and attempts
    Plant("assert_only_claimable_runs_are_leased", "succeeded", row(LEASE), "LEA-1", "runs.lease_attempt_id"),
    Plant("assert_events_stay_below_the_fence", "succeeded", row("fencing_epoch = 0"), "LEA-2", "runs.fencing_epoch"),
    Plant(
        "assert_leases_are_whole",
        "leased",
        row("lease_renewed_at = lease_expires_at"),
        "LEA-7",
        "runs.lease_expires_at",
    ),
    Plant("assert_leases_are_whole", "leased", row("lease_attempt_id = NULL"), "LEA-7", "runs.lease_expires_at"),
    Plant(
        "assert_live_leases_keep_to_the_limit",
        "leased",
        f"{row(LEASE)};{SLOT.format(slot=0)};{SLOT.format(slot=1)}",
        "LEA-13",
        "tenant_slots[slot=1].slot",
    ),
    Plant(
        "assert_live_leases_keep_to_the_limit",
        "leased",
        f"{row(LEASE)};{SLOT.format(slot=2)};INSERT INTO agentruns.tenant_limits (tenant_id, maximum_live, updated_at)"
        " VALUES ('tenant-a', 2, now() - interval '1 hour')",
        "LEA-13",
        "tenant_slots[slot=2].slot",
    ),
    Plant(
        "assert_one_success_per_activation",
        "retried",
        event(3, "kind = 'graph-node-attempt-succeeded'"),
        "LEA-16",
        "run_events[sequence=5 superstep=0 node_id=decide].kind",
    ),
    Plant(
        "assert_one_completion_per_attempt",
        "retried",
        said(3, '"attempt":"1"', '"attempt":"2"'),
        "LEA-16",
        "run_events[sequence=3 superstep=0 node_id=decide attempt=2].kind",
    ),
    Plant(
        "assert_completions_have_the_epoch_of_their_starts",
        "succeeded",
        event(3, "epoch = 2"),
        "LEA-17",
        "run_events[sequence=3 superstep=0 node_id=decide attempt=1].epoch",
    ),
    Plant(
        "assert_open_starts_are_taken_over_by_higher_epochs",
        "superseded",
        event(3, "epoch = 1"),
        "LEA-18",
        "run_events[sequence=3 superstep=0 node_id=decide attempt=2].epoch",
    ),
    Plant(
        "assert_retries_wait_for_their_gates",
        "retried",
        event(4, "recorded_at = recorded_at - interval '1 day'"),
        "LEA-19",
        "run_events[sequence=4 superstep=0 node_id=decide attempt=2].recorded_at",
    ),
    Plant(
        "assert_starts_are_numbered",
        "retried",
        said(4, '"attempt":"2"', '"attempt":"3"'),
        "LED-17",
        "run_events[sequence=4 superstep=0 node_id=decide].data",
    ),
    Plant("assert_epochs_never_fall", "superseded", event(4, "epoch = 1"), "LEA-20", "run_events[sequence=4].epoch"),
    Plant("assert_quarantined_runs_stand_still", "quarantined", row(LEASE), "LEA-24", "runs.lease_attempt_id"),
    Plant(
        "assert_quarantined_runs_stand_still",
        "quarantined",
        row("head_recorded_at = quarantined_at + interval '1 s'"),
        "LEA-24",
        "runs.head_recorded_at",
    ),
    Plant(
        "assert_marks_are_those_of_quarantines",
        "quarantined",
        row("quarantined_at = NULL"),
        "OPS-13",
        "runs.quarantined_at",
    ),
    Plant(
        "assert_quarantines_stand_as_their_records_say",
        "quarantined",
        "UPDATE agentruns.run_quarantines SET component = 'x' WHERE it",
        "DB-6",
        "run_quarantines.component",
    ),
    Plant(
        "assert_batches_are_in_order",
        "superseded",
        f"{event(3, 'epoch = 1')};{said(2, 'decide', 'zed')}",
        "DRV-2",
        "run_events[sequence=3 superstep=0 node_id=decide].data",
    ),
    # lifecycle and waits
    Plant(
        "assert_nothing_follows_an_end",
        "succeeded",
        event(9, "kind = 'graph-run-failed'"),
        "LIF-1",
        "run_events[sequence=10].kind",
    ),
    Plant(
        "assert_ended_runs_have_an_outcome",
        "succeeded",
        "DELETE FROM agentruns.run_outcomes WHERE it",
        "LIF-1",
        "run_outcomes[kind=outcome]",
    ),
    Plant("assert_revisions_count_transitions", "succeeded", row("revision = 7"), "LIF-2", "runs.revision"),
    Plant(
        "assert_revisions_count_transitions",
        "succeeded",
        said(10, '"revision":"2"', '"revision":"3"'),
        "LIF-2",
        "run_events[sequence=10].data",
    ),
    Plant(
        "assert_requests_are_not_overtaken",
        "cancelled",
        event(7, "kind = 'graph-run-failed'"),
        "LIF-6",
        "run_events[sequence=7].kind",
    ),
    Plant(
        "assert_waiting_runs_have_waits",
        "waiting",
        "UPDATE agentruns.run_waits SET status = 'fired' WHERE it",
        "LIF-7",
        "run_waits.status",
    ),
    Plant(
        "assert_waits_are_settled_by_their_events",
        "waiting",
        "UPDATE agentruns.run_waits SET settled_sequence = 4 WHERE it AND status = 'fired'",
        "LIF-8",
        "run_waits[wait_id=…].status",
    ),
    Plant(
        "assert_waits_are_settled_by_their_events",
        "cancelled",
        "UPDATE agentruns.run_waits SET status = 'outstanding', settled_sequence = NULL"
        " WHERE it AND status = 'abandoned'",
        "LIF-8",
        "run_waits[wait_id=…].settled_sequence",
    ),
    Plant(
        "assert_waits_are_settled_in_time",
        "waiting",
        "UPDATE agentruns.run_waits SET due_at = due_at + interval '100 years' WHERE it AND status = 'fired'",
        "LIF-9",
        "run_waits[wait_id=…].due_at",
    ),
    Plant(
        "assert_claimable_runs_are_discoverable",
        "queued",
        row("scheduler_ready_at = NULL"),
        "LIF-10",
        "runs.scheduler_ready_at",
    ),
    Plant(
        "assert_one_request_to_cancel",
        "cancelled",
        event(5, "kind = 'agent-cancellation-requested'"),
        "LIF-15",
        "run_events[sequence=6].kind",
    ),
    Plant(
        "assert_one_request_to_cancel",
        "cancelling",
        f"{event(6, 'kind = $$agent-deadline-cancellation-requested$$')};"
        f"{row('agent_deadline_at = now() + interval $$1 day$$')}",
        "LIF-15",
        "run_events[sequence=6].kind",
    ),
    Plant(
        "assert_ended_runs_have_no_open_call",
        "succeeded",
        CALL.format(kind="tool", more=", risk", values=", 'read_only'"),
        "LIF-16",
        "tool_invocations[invocation_id=…].status",
    ),
    Plant(
        "assert_cancelled_runs_keep_their_request",
        "cancelled",
        "DELETE FROM agentruns.run_outcomes WHERE it AND kind = 'cancellation'",
        "SUB-23",
        "run_outcomes[kind=cancellation]",
    ),
    Plant(
        "assert_status_follows_from_the_last_transition",
        "succeeded",
        row("status = 'failed'"),
        "SUB-25",
        "runs.status",
    ),
    # scheduling
    Plant(
        "assert_readiness_is_not_before_admission",
        "queued",
        row("scheduler_ready_at = scheduler_ready_at - interval '1 day'"),
        "SCH-2",
        "runs.scheduler_ready_at",
    ),
    Plant(
        "assert_cycles_stand_behind_their_last_turn",
        "queued",
        f"{SHARD.format(slot=0, sequence=6)};{TURN}",
        "SCH-6",
        "scheduler_fairness_shards[shard_id=s].next_sequence",
    ),
    Plant(
        "assert_cycles_stand_behind_their_last_turn",
        "queued",
        f"{SHARD.format(slot=1, sequence=7)};{TURN}",
        "SCH-6",
        "scheduler_fairness_shards[shard_id=s].next_slot",
    ),
    Plant(
        "assert_gates_stand_before_claims",
        "leased",
        row("scheduler_not_before = scheduler_ready_at"),
        "SCH-10",
        "runs.scheduler_not_before",
    ),
    Plant(
        "assert_runs_pin_what_was_admitted",
        "queued",
        row("graph_definition_digest = sha256('x')"),
        "SCH-11",
        "runs.graph_definition_digest",
    ),
    Plant(
        "assert_runs_pin_what_was_admitted",
        "queued",
        "DELETE FROM agentruns.graph_definitions",
        "SCH-11",
        "graph_definitions",
    ),
    # schema
    Plant(
        "assert_every_table_is_guarded",
        "queued",
        "ALTER TABLE agentruns.run_events DISABLE TRIGGER append_only",
        "DB-1",
        "run_events[trigger=append_only]",
    ),
    Plant(
        "assert_every_check_holds",
        "queued",
        "ALTER TABLE agentruns.runs ADD CONSTRAINT ck_odd CHECK (revision > 0) NOT VALID",
        "DB-3",
        "runs[constraint=ck_odd]",
    ),
    Plant(
        "assert_every_key_begins_with_the_tenant",
        "queued",
        "ALTER TABLE agentruns.runs ADD CONSTRAINT uq_odd UNIQUE (thread_id)",
        "DB-4",
        "runs[constraint=uq_odd].thread_id",
    ),
    Plant(
        "assert_hot_columns_are_in_no_index",
        "queued",
        "CREATE INDEX ix_odd ON agentruns.runs (tenant_id, superstep)",
        "DB-5",
        "runs[index=ix_odd].superstep",
    ),
]


@pytest.mark.parametrize("plant", PLANTS, ids=[plant.name for plant in PLANTS])
def test_a_planted_fault_is_found_at_its_place(damaged: Any, plant: Plant) -> None:
    check, run_id = getattr(invariants, plant.check), damaged.runs[plant.state].text

    async def work(connection: AsyncConnection) -> None:
        await check(connection)
        for statement in plant.sql.replace("WHERE it", "WHERE run_id = CAST(:run_id AS uuid)").split(";"):
            await connection.execute(text(statement), {"run_id": run_id} if ":run_id" in statement else {})
        with pytest.raises(BrokenLawError) as broken:
            await check(connection)
        first = broken.value.findings[0]
        place = re.sub(r"(wait_id|invocation_id)=[0-9a-f-]{36}", r"\1=…", first.place)
        assert (first.label, place) == (plant.label, plant.place)
        assert first.found != first.wanted
        assert first.sentence in str(broken.value)

    damaged.within(work)


@pytest.mark.parametrize("since", ["now()", "now() - interval '30 s'"])
def test_a_place_that_was_taken_before_the_limit_was_lowered_is_no_fault(damaged: Any, since: str) -> None:
    """A claim that was under way then may hold it for a moment longer."""

    async def work(connection: AsyncConnection) -> None:
        limit = (
            f"INSERT INTO agentruns.tenant_limits (tenant_id, maximum_live, updated_at) VALUES ('tenant-a', 2, {since})"
        )
        lease = row(LEASE).replace("WHERE it", "WHERE run_id = CAST(:run_id AS uuid)")
        for statement in (lease, SLOT.format(slot=2), limit):
            named = {"run_id": damaged.runs["leased"].text} if ":run_id" in statement else {}
            await connection.execute(text(statement), named)
        await invariants.assert_live_leases_keep_to_the_limit(connection)

    damaged.within(work)


def test_every_assertion_has_a_fault_that_it_finds() -> None:
    assert {plant.check for plant in PLANTS} == {check.__name__ for check in ASSERTIONS}


def test_assertions_and_command_need_no_test_runner() -> None:
    script = (
        "import sys, agentruns.testing.invariants, agentruns.testing.faults;"
        "print([name for name in ('pytest', 'hypothesis') if name in sys.modules])"
    )
    command = (
        "import sys, agentruns.cli.audit;"
        "print([name for name in sys.modules if name.startswith(('agentruns.testing', 'pytest', 'hypothesis'))])"
    )
    for each in (script, command):
        done = subprocess.run([sys.executable, "-c", each], capture_output=True, text=True, check=True)  # noqa: S603
        assert done.stdout == "[]\n"


def test_what_is_exported_is_what_is_asserted() -> None:
    names = {name for name in dir(invariants) if name.startswith("assert_")}
    assert names == {check.__name__ for check in ASSERTIONS}
    assert set(invariants.__all__) - names == {
        "ASSERTIONS",
        "EVERYTHING",
        "AuditScope",
        "BrokenLawError",
        "Finding",
        "audit_runs",
        "breaches",
    }
