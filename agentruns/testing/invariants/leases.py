"""Who may write, under which epoch, and how attempts follow one another."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit import EVERYTHING, AuditScope
from agentruns.operations.audit.laws import attempts, beside, leases, ledger
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.testing.invariants.broken import insist


async def assert_only_claimable_runs_are_leased(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-1: only a run whose status permits a claim has a lease."""
    await insist(leases.ONLY_CLAIMABLE_RUNS_ARE_LEASED, connection, scope, schema)


async def assert_events_stay_below_the_fence(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-2, LEA-3: no event has an epoch above that of its run."""
    await insist(leases.EVENTS_STAY_BELOW_THE_FENCE, connection, scope, schema)


async def assert_leases_are_whole(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-7: a lease has an owner, an epoch, and instants in their order."""
    await insist(leases.LEASES_ARE_WHOLE, connection, scope, schema)


async def assert_live_leases_keep_to_the_limit(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-13, SCH-8: no place is taken above a tenant's limit, and no claim takes two."""
    await insist(leases.LIVE_LEASES_KEEP_TO_THE_LIMIT, connection, scope, schema)


async def assert_one_success_per_activation(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-16, LED-17: a node succeeds once in a superstep at most."""
    await insist(attempts.ONE_SUCCESS_PER_ACTIVATION, connection, scope, schema)


async def assert_one_completion_per_attempt(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-16: an attempt ends once at most, and never before it was started."""
    await insist(attempts.ONE_COMPLETION_PER_ATTEMPT, connection, scope, schema)


async def assert_completions_have_the_epoch_of_their_starts(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-17: an attempt ends under the epoch that it was started under."""
    await insist(attempts.COMPLETIONS_HAVE_THE_EPOCH_OF_THEIR_STARTS, connection, scope, schema)


async def assert_open_starts_are_taken_over_by_higher_epochs(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-18, LED-17: a start that has not ended is followed by another only under a higher epoch."""
    await insist(attempts.AN_OPEN_START_IS_TAKEN_OVER_BY_A_HIGHER_EPOCH, connection, scope, schema)


async def assert_retries_wait_for_their_gates(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-19, LEA-27, LED-17: an attempt that has ended is followed by another only after its failure's gate."""
    await insist(attempts.A_RETRY_WAITS_FOR_ITS_GATE, connection, scope, schema)


async def assert_starts_are_numbered(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-15, LED-17: the starts of a node in a superstep are numbered from 1 to 64 at most."""
    await insist(attempts.STARTS_ARE_NUMBERED, connection, scope, schema)


async def assert_epochs_never_fall(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-20, LED-16: the epochs of worker events never fall."""
    await insist(ledger.EPOCHS_NEVER_FALL, connection, scope, schema)


async def assert_quarantined_runs_stand_still(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LEA-24: a quarantined run has no lease, and its head does not move."""
    await insist(leases.QUARANTINED_RUNS_STAND_STILL, connection, scope, schema)


async def assert_marks_are_those_of_quarantines(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """OPS-13: a run is marked exactly while one quarantine of it is not released."""
    await insist(leases.THE_MARK_IS_THAT_OF_THE_QUARANTINE, connection, scope, schema)


async def assert_quarantines_stand_as_their_records_say(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """DB-6: the columns of quarantines and releases are those of their records."""
    await insist(beside.quarantines_stand_as_their_records_say(), connection, scope, schema)


async def assert_batches_are_in_order(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """DRV-2: starts of a batch follow in the order of their nodes, and so do its completions. No audit asks it."""
    await insist(attempts.BATCHES_ARE_IN_ORDER, connection, scope, schema)
