"""What a run may become, what it waits for, and how it ends."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit import EVERYTHING, AuditScope
from agentruns.operations.audit.laws import ledger, lifecycle
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.testing.invariants.broken import insist


async def assert_nothing_follows_an_end(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-1: a terminal event is the last of its run."""
    await insist(lifecycle.NOTHING_FOLLOWS_AN_END, connection, scope, schema)


async def assert_ended_runs_have_an_outcome(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-1: a run has an outcome exactly when it has ended."""
    await insist(lifecycle.ENDED_RUNS_HAVE_AN_OUTCOME, connection, scope, schema)


async def assert_revisions_count_transitions(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-2, LED-16: the revision is the number of transitions."""
    await insist(ledger.REVISIONS_COUNT_TRANSITIONS, connection, scope, schema)


async def assert_requests_are_not_overtaken(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-6, SUB-22: after a request to cancel a run neither succeeds nor fails."""
    await insist(lifecycle.A_REQUEST_IS_NOT_OVERTAKEN, connection, scope, schema)


async def assert_waiting_runs_have_waits(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-7: a run is waiting exactly while a wait of it is outstanding."""
    await insist(lifecycle.WAITING_RUNS_HAVE_WAITS, connection, scope, schema)


async def assert_waits_are_settled_by_their_events(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-8, SUB-21: a wait is settled by exactly one event, as that event says."""
    await insist(lifecycle.WAITS_ARE_SETTLED_BY_THEIR_EVENTS, connection, scope, schema)


async def assert_waits_are_settled_in_time(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-9: an interrupt is answered before it expires, and a timer fires when it is due."""
    await insist(lifecycle.WAITS_ARE_SETTLED_IN_TIME, connection, scope, schema)


async def assert_claimable_runs_are_discoverable(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-10, LEA-11: a run can be discovered exactly while its status permits a claim."""
    await insist(lifecycle.CLAIMABLE_RUNS_ARE_DISCOVERABLE, connection, scope, schema)


async def assert_one_request_to_cancel(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-15: a run is asked to end once at most, and by its deadline not before it."""
    await insist(lifecycle.ONE_REQUEST_TO_CANCEL, connection, scope, schema)


async def assert_ended_runs_have_no_open_call(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LIF-16: no run has ended while a call of it is executing or unknown."""
    await insist(lifecycle.ENDED_RUNS_HAVE_NO_OPEN_CALL, connection, scope, schema)


async def assert_cancelled_runs_keep_their_request(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """SUB-23: a run has a request to cancel exactly when it was asked to end or was cancelled."""
    await insist(lifecycle.CANCELLED_RUNS_KEEP_THEIR_REQUEST, connection, scope, schema)


async def assert_status_follows_from_the_last_transition(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """SUB-25: the status of a run is the one that its last transition leads to."""
    await insist(lifecycle.STATUS_FOLLOWS_FROM_THE_LAST_TRANSITION, connection, scope, schema)
