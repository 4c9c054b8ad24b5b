"""When a run opens, what it pins, and the cycles that share turns."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit import EVERYTHING, AuditScope
from agentruns.operations.audit.laws import scheduling, submission
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.testing.invariants.broken import insist


async def assert_readiness_is_not_before_admission(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """SCH-2: a run is ready when it was admitted, or later."""
    await insist(scheduling.READINESS_IS_NOT_BEFORE_ADMISSION, connection, scope, schema)


async def assert_cycles_stand_behind_their_last_turn(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """SCH-6, SCH-7: a cycle stands behind the last turn that was taken of it, inside its length."""
    await insist(scheduling.CYCLES_STAND_BEHIND_THEIR_LAST_TURN, connection, scope, schema)


async def assert_gates_stand_before_claims(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """SCH-10: a gate stands only before a claim."""
    await insist(scheduling.GATES_STAND_BEFORE_CLAIMS, connection, scope, schema)


async def assert_runs_pin_what_was_admitted(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """SCH-11: a run row names the graph that was admitted, which its tenant has."""
    await insist(submission.RUNS_PIN_WHAT_WAS_ADMITTED, connection, scope, schema)
