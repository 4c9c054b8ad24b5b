"""What the catalogue shows: guards, checks, keys and indexes."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit import EVERYTHING
from agentruns.operations.audit.laws import schema as laws
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.testing.invariants.broken import insist


async def assert_every_table_is_guarded(connection: AsyncConnection, *, schema: str = SCHEMA_TOKEN) -> None:
    """DB-1: every table but ``applied_revisions`` has its append-only trigger, enabled."""
    await insist(laws.EVERY_TABLE_IS_GUARDED, connection, EVERYTHING, schema)


async def assert_every_check_holds(connection: AsyncConnection, *, schema: str = SCHEMA_TOKEN) -> None:
    """DB-3: every check and foreign key is validated."""
    await insist(laws.EVERY_CHECK_HOLDS, connection, EVERYTHING, schema)


async def assert_every_key_begins_with_the_tenant(connection: AsyncConnection, *, schema: str = SCHEMA_TOKEN) -> None:
    """DB-4: every key and foreign key of a table of tenants begins with the tenant."""
    await insist(laws.EVERY_KEY_BEGINS_WITH_THE_TENANT, connection, EVERYTHING, schema)


async def assert_hot_columns_are_in_no_index(connection: AsyncConnection, *, schema: str = SCHEMA_TOKEN) -> None:
    """DB-5: no column of head, superstep, checkpoint or lease is in an index of ``runs``."""
    await insist(laws.HOT_COLUMNS_ARE_IN_NO_INDEX, connection, EVERYTHING, schema)
