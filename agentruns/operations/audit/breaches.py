"""Ask one law alone, over any number of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit.findings import Finding
from agentruns.operations.audit.law import Law, WholeLaw
from agentruns.operations.audit.scope import EVERYTHING, AuditScope
from agentruns.operations.audit.snapshot import moment
from agentruns.operations.audit.walking import Walk
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.runtime.retry import as_store_error


async def breaches(
    law: Law | WholeLaw,
    connection: AsyncConnection,
    scope: AuditScope = EVERYTHING,
    *,
    schema: str = SCHEMA_TOKEN,
) -> AsyncIterator[Finding]:
    """Give every place of a scope where the law is broken, whatever else is. Nothing is written.

    Runs are read in batches, as :func:`~agentruns.operations.audit.audit_runs` reads them.

    Raises:
        StoreUnavailableError: the database's trouble passes.
    """
    with as_store_error(schema, commits=False):
        if isinstance(law, WholeLaw):
            async with moment(connection, schema) as snapshot:
                wide = await law.find(snapshot, scope) if law.concerns(scope) else []
            for finding in wide:
                yield finding
            return
        walk = Walk(connection, scope, schema)
        while not walk.is_over:
            async with walk.next() as (snapshot, batch):
                found = await law.find(snapshot, batch)
            for finding in found:
                yield finding
