"""How runs are admitted: wholly or not at all, once for each key."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit import EVERYTHING, AuditScope
from agentruns.operations.audit.laws import beside, submission
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.testing.invariants.broken import insist


async def assert_admissions_are_whole(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """SUB-12, SUB-13: a run has its admission, its arbiter, its first event and checkpoint, or is not there."""
    await insist(submission.ADMISSIONS_ARE_WHOLE, connection, scope, schema)


async def assert_one_key_one_submission(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """SUB-3: every key of a run stands for the submission that its first event names."""
    await insist(submission.ONE_KEY_ONE_SUBMISSION, connection, scope, schema)


async def assert_loads_believe_their_runs(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """SUB-17: submission, key, lease, scheduling and the rest of what a load reads verify."""
    await insist(beside.a_load_believes_the_run(), connection, scope, schema)
