"""One moment of a database: what a law reads of a run that moves meanwhile must be of one moment."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final, TypeVar

from attrs import field, frozen
from sqlalchemy import RowMapping, TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.runtime.clock import DatabaseClock
from agentruns.store.options import check_schema_name
from agentruns.store.unit_of_work import UnitOfWork

T = TypeVar("T")

#: Instants are shown in one zone. The statements are large and their rows few: to compile them would take longest.
_SETTINGS: Final = text("SELECT set_config('TimeZone', 'UTC', true), set_config('jit', 'off', true)")

_RANGE: Final = re.compile(r"@(\w+)")
_NAME: Final = re.compile(r"(?<![:\w]):([a-z_]+)")
_WITHIN: Final = (
    r"(\1.tenant_id, \1.run_id) > (:after_tenant, CAST(:after_run AS uuid))"
    r" AND (\1.tenant_id, \1.run_id) <= (:until_tenant, CAST(:until_run AS uuid))"
)
_AMONG: Final = (
    r"(\1.tenant_id, \1.run_id) IN (SELECT drawn.tenant_id, drawn.run_id"
    r" FROM unnest(CAST(:drawn_tenants AS text[]), CAST(:drawn_runs AS uuid[])) AS drawn (tenant_id, run_id))"
)


@cache
def statement(sql: str, schema: str, *, of_drawn: bool = False) -> tuple[TextClause, frozenset[str]]:
    """Read a law's text, and which parameters it names.

    ``$.`` is the schema, and ``@e`` says that rows of ``e`` are in the range of keys, or among those that were drawn.
    """
    quoted = f'"{check_schema_name(schema)}"'
    whole = _RANGE.sub(_AMONG if of_drawn else _WITHIN, sql.replace("$.", f"{quoted}."))
    return text(whole), frozenset(_NAME.findall(whole))


@frozen(kw_only=True)
class Snapshot:
    """Read within one transaction.

    Attributes:
        connection: in a transaction, whose snapshot it is.
        schema: the database schema.
        clock: what the readers of histories tell the time to; nobody asks it.
    """

    connection: AsyncConnection
    schema: str
    clock: DatabaseClock = field(factory=DatabaseClock)

    async def read(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run a unit of work that reads."""
        return await self.connection.run_sync(lambda connection: work(UnitOfWork(connection, schema=self.schema)))

    async def rows(self, sql: str, parameters: Mapping[str, Any]) -> Sequence[RowMapping]:
        """Send the text of a law with those of the parameters that it names."""
        asked, names = statement(sql, self.schema, of_drawn="drawn_runs" in parameters)
        named = {name: parameters[name] for name in names}
        return (await self.connection.execute(asked, named)).mappings().all()


@asynccontextmanager
async def moment(connection: AsyncConnection, schema: str) -> AsyncIterator[Snapshot]:
    """Read as of now until the block ends: REPEATABLE READ, and READ ONLY.

    A connection that is in a transaction already is read in that one, whatever its isolation; it is neither committed
    nor rolled back.
    """
    if connection.in_transaction():
        yield Snapshot(connection=connection, schema=schema)
        return
    await connection.execution_options(isolation_level="REPEATABLE READ")
    async with connection.begin():
        await connection.execute(text("SET TRANSACTION READ ONLY"))
        await connection.execute(_SETTINGS)
        yield Snapshot(connection=connection, schema=schema)
