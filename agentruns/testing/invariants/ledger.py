"""What a journal says, and that every row says the same."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit import EVERYTHING, AuditScope
from agentruns.operations.audit.laws import beside, chain, definitions, ledger, rows
from agentruns.operations.audit.laws.folding import FoldLaw
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.testing.invariants.broken import insist


async def assert_runs_fold(
    connection: AsyncConnection,
    scope: AuditScope = EVERYTHING,
    *,
    schema: str = SCHEMA_TOKEN,
    executables: ExecutableGraphRegistry | None = None,
) -> None:
    """LED-1, LED-4, GRA-6, LED-22: the fold of all events gives the run row and every row of the run.

    Graphs of ``executables`` are folded with their own reducers and schemas; of any other, states are taken as
    recorded.
    """
    await insist(FoldLaw(executables), connection, scope, schema)


async def assert_events_have_their_rows(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LED-1: each event has exactly the rows that it was written with, and each row its event."""
    for law in rows.EVERY_EVENT_HAS_ITS_ROWS:
        await insist(law, connection, scope, schema)


async def assert_run_rows_stand_at_their_heads(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LED-1: the run row says what its last event, transition and checkpoint say."""
    await insist(ledger.RUN_ROWS_STAND_AT_THEIR_HEADS, connection, scope, schema)


async def assert_events_are_chained(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LED-2: the digest of each event covers the event and the digest before it."""
    await insist(chain.EVENTS_ARE_CHAINED, connection, scope, schema)


async def assert_bodies_hash_to_their_digests(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LED-2, DB-6: the bytes of a body hash to the digest beside them."""
    await insist(ledger.BODIES_HASH_TO_THEIR_DIGESTS, connection, scope, schema)


async def assert_calls_stand_as_their_events_say(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LED-2: every call has the rows and the bodies that its events name."""
    await insist(beside.calls_stand_as_their_events_say(), connection, scope, schema)


async def assert_sequences_are_contiguous(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LED-16, LEA-20: the sequences of a journal are contiguous from 1."""
    await insist(ledger.SEQUENCES_ARE_CONTIGUOUS, connection, scope, schema)


async def assert_time_never_falls(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LED-16: the instants of a journal never fall."""
    await insist(ledger.TIME_NEVER_FALLS, connection, scope, schema)


async def assert_events_satisfy_their_documents(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """LED-21: the data of each event satisfy the schema document that its row names."""
    await insist(chain.EVENTS_SATISFY_THEIR_DOCUMENTS, connection, scope, schema)


async def assert_rows_belong_to_runs(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """OPS-8, OPS-9: every row of a run belongs to a run that is there."""
    await insist(ledger.NO_STRAYS, connection, scope, schema)


async def assert_definitions_are_what_their_digests_say(
    connection: AsyncConnection, scope: AuditScope = EVERYTHING, *, schema: str = SCHEMA_TOKEN
) -> None:
    """GRA-1: the bytes of a graph's definition are the graph that digest and names say."""
    await insist(definitions.DEFINITIONS_ARE_WHAT_THEIR_DIGESTS_SAY, connection, scope, schema)
