"""Hold the database's clock still and move it: an instant's boundary is met exactly, and nobody sleeps for it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from attrs import frozen
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

_TABLE: Final = "CREATE TABLE moved.clock AS SELECT cast(NULL AS timestamptz) AS at"
_FUNCTION: Final = """CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    BEGIN ATOMIC SELECT coalesce(at, pg_catalog.clock_timestamp()) FROM moved.clock; END"""

#: Whoever asks for the time reads the table.
_SHARED: Final = ("GRANT USAGE ON SCHEMA moved TO PUBLIC", "GRANT SELECT ON moved.clock TO PUBLIC")


@frozen
class MovableClock:
    """Stand for the clock of one database, for every connection that is opened after :meth:`install`.

    A name is looked up in the schemas of the search path first, so the statements of the library find this clock
    where they say ``clock_timestamp()``.
    """

    url: str

    async def install(self) -> None:
        """Put the clock in the place of the server's; it runs until it is set."""
        database = make_url(self.url).database
        search = f'ALTER DATABASE "{database}" SET search_path = moved, pg_catalog'
        await self._execute("CREATE SCHEMA moved", _TABLE, _FUNCTION, *_SHARED, search)

    async def now(self) -> datetime:
        """Say where the clock stands, or what it shows in passing."""
        found: datetime = (await self._execute("SELECT moved.clock_timestamp() AS now"))[0].now
        return found

    async def set(self, at: datetime) -> None:
        """Move the clock to an instant, back as well as forth, and hold it there."""
        await self._execute("UPDATE moved.clock SET at = :at", at=at)

    async def advance(self, by: timedelta) -> None:
        """Move the clock forth, or back by less than nothing, and hold it there."""
        await self._execute("UPDATE moved.clock SET at = moved.clock_timestamp() + :by", by=by)

    async def _execute(self, *statements: str, **values: Any) -> Sequence[Any]:
        engine = create_async_engine(self.url, poolclass=NullPool)
        async with engine.begin() as connection:
            for statement in statements:
                result = await connection.execute(text(statement), values)
            found = result.all() if result.returns_rows else []
        await engine.dispose()
        return found
