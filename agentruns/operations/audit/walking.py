"""Walk the runs of a scope in batches, each read in one snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Any, Final

from attrs import define, field
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit.law import Batch
from agentruns.operations.audit.scope import AuditScope, DrawnKeys, Key, KeyRange
from agentruns.operations.audit.snapshot import Snapshot, moment

#: Of one batch; a run with more events is a batch of its own.
MAXIMUM_RUNS: Final = 128
MAXIMUM_EVENTS: Final = 16_384

_RUNS: Final = """
SELECT r.tenant_id, r.run_id, r.head_sequence FROM $.runs AS r WHERE @r{0}
ORDER BY r.tenant_id, r.run_id LIMIT :maximum_runs
"""
_COUNT: Final = "SELECT count(*) AS n FROM $.runs AS r WHERE @r{0}"
_DRAWN: Final = " AND uuid_hash_extended(r.run_id, CAST(:seed AS bigint)) <= CAST(:highest AS bigint)"


@define
class Walk:
    """Hold how far a scope has been read.

    Attributes:
        after: the last key that was read.
        is_over: nothing of the scope is left.
    """

    connection: AsyncConnection
    scope: AuditScope
    schema: str
    after: Key = field(init=False)
    is_over: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.after = self.scope.keys.after

    async def count(self) -> int:
        """Count the runs of the scope, as they are now; of a sample, those that are drawn."""
        async with moment(self.connection, self.schema) as snapshot:
            (row,) = await snapshot.rows(*self._asked(_COUNT, self.scope.keys))
        return int(row["n"])

    @asynccontextmanager
    async def next(self) -> AsyncIterator[tuple[Snapshot, Batch]]:
        """Read the next runs within the block; those that come later than the batch before are met, too."""
        async with moment(self.connection, self.schema) as snapshot:
            keys, runs = await self._found(snapshot)
            is_sample = self.scope.sample is not None
            yield snapshot, Batch(keys=DrawnKeys([key for key, _ in runs]) if is_sample else keys, runs=runs)
        self.after = keys.until
        self.is_over = self.after == self.scope.keys.until

    async def _found(self, snapshot: Snapshot) -> tuple[KeyRange, Sequence[tuple[Key, int]]]:
        """Find the next runs, and the range of keys that is walked with them."""
        rest = self.scope.rest(self.after)
        sql, parameters = self._asked(_RUNS, rest)
        rows = await snapshot.rows(sql, {**parameters, "maximum_runs": MAXIMUM_RUNS})
        sizes = accumulate(max(row["head_sequence"], 1) for row in rows)
        fitting = max(sum(size <= MAXIMUM_EVENTS for size in sizes), 1)
        runs = [((row["tenant_id"], str(row["run_id"])), row["head_sequence"]) for row in rows[:fitting]]
        is_last = len(rows) < MAXIMUM_RUNS and len(runs) == len(rows)
        until = rest.until if is_last else runs[-1][0]
        return KeyRange(self.after, until), runs

    def _asked(self, sql: str, keys: KeyRange) -> tuple[str, dict[str, Any]]:
        sample = self.scope.sample
        if sample is None:
            return sql.format(""), keys.parameters
        return sql.format(_DRAWN), {**keys.parameters, **sample.parameters}
