"""Ten faults of ten kinds, planted behind every guard in runs that were whole, and where each has to be found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import frozen
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.domain.ids import RunId

_STRAY: Final = RunId("01980000-0000-7000-8000-00000000ffff")
_LEASE: Final = (
    "lease_attempt_id = run_id, lease_acquired_at = now(), lease_renewed_at = now(),"
    " lease_expires_at = now() + interval '1 day'"
)


@frozen
class _Kind:
    state: str
    sql: str
    label: str
    place: str


def _row(change: str) -> str:
    return f"UPDATE agentruns.runs SET {change} WHERE it"  # noqa: S608 - a test's damage


_KINDS: Final = (
    # a byte of an event
    _Kind(
        "succeeded",
        "UPDATE agentruns.run_events SET data = set_byte(data, 5, get_byte(data, 5) # 1) WHERE it AND sequence = 3",
        "LED-2",
        "run_events[sequence=3].digest",
    ),
    # an event that is gone
    _Kind(
        "retried",
        "DELETE FROM agentruns.run_events WHERE it AND sequence = 3",
        "LED-16",
        "run_events[sequence=4].sequence",
    ),
    # a byte of a result
    _Kind(
        "superseded",
        "UPDATE agentruns.node_results SET body = set_byte(body, 5, get_byte(body, 5) # 1) WHERE it AND superstep = 1",
        "LED-2",
        "node_results[superstep=1 node_id=work attempt=1].body",
    ),
    # a row that is gone
    _Kind("leased", "DELETE FROM agentruns.node_attempts WHERE it", "LED-1", "node_attempts[sequence=2]"),
    # a wait that nothing has settled
    _Kind(
        "waiting",
        "UPDATE agentruns.run_waits SET status = 'abandoned', settled_sequence = 5 WHERE it AND status = 'outstanding'",
        "LIF-8",
        "run_waits[wait_id={wait_id}].status",
    ),
    # a status that no event has set
    _Kind("failed", _row("status = 'succeeded'"), "SUB-25", "runs.status"),
    # a lease beside a quarantine
    _Kind("quarantined", _row(_LEASE), "LEA-24", "runs.lease_attempt_id"),
    # a run that nobody can find
    _Kind("queued", _row("scheduler_ready_at = NULL"), "LIF-10", "runs.scheduler_ready_at"),
    # a submission that was not this one
    _Kind(
        "cancelled",
        "UPDATE agentruns.agent_submission_keys SET submission_digest = sha256('x') WHERE it",
        "SUB-3",
        "agent_submission_keys[origin=admitted].submission_digest",
    ),
    # a row that has outlived its run
    _Kind(
        "stray",
        "INSERT INTO agentruns.node_attempts (tenant_id, run_id, superstep, node_id, attempt, attempt_id, sequence)"
        " VALUES ('tenant-a', CAST(:run_id AS uuid), 0, 'decide', 1, CAST(:run_id AS uuid), 2)",
        "OPS-9",
        "node_attempts",
    ),
)


@frozen(order=True)
class PlantedFault:
    """Say what an audit has to find.

    Attributes:
        label: of the law that is broken.
        run_id: of the run, in text.
        place: of the finding.
    """

    label: str
    run_id: str
    place: str


async def plant_ten(
    connection: AsyncConnection,
    runs: Mapping[str, Sequence[RunId]],
    *,
    choose: Callable[[Sequence[RunId]], RunId] = lambda runs: runs[0],
) -> list[PlantedFault]:
    """Damage one run of each of nine states, and leave a row of a run that is not there.

    Args:
        connection: of a superuser whom neither trigger nor check stops, in autocommit.
        runs: by their state, as :data:`~agentruns.testing.mixed_runs.MIXED_STATES` names them.
        choose: picks the run of a state.
    """
    planted: list[PlantedFault] = []
    for kind in _KINDS:
        run_id = (_STRAY if kind.state == "stray" else choose(runs[kind.state])).text
        found = await connection.execute(
            text(
                "SELECT wait_id FROM agentruns.run_waits"
                " WHERE run_id = CAST(:run_id AS uuid) AND status = 'outstanding'"
            ),
            {"run_id": run_id},
        )
        wait_id = found.scalar_one_or_none()
        damage = kind.sql.replace("WHERE it", "WHERE run_id = CAST(:run_id AS uuid)")
        await connection.execute(text(damage), {"run_id": run_id})
        planted.append(PlantedFault(kind.label, run_id, kind.place.format(wait_id=wait_id)))
    return sorted(planted)
