"""Walk the runs of a scope in batches, each read in one snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import accumulate
from typing import Final

from attrs import define, field
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit.law import Batch
from agentruns.operations.audit.scope import AuditScope, Key, KeyRange
from agentruns.operations.audit.snapshot import Snapshot, moment

#: Of one batch; a run with more events is a batch of its own.
MAXIMUM_RUNS: Final = 128
MAXIMUM_EVENTS: Final = 16_384

_RUNS: Final = """
SELECT r.tenant_id, r.run_id, r.head_sequence FROM $.runs AS r WHERE @r
ORDER BY r.tenant_id, r.run_id LIMIT :maximum_runs
"""
_COUNT: Final = "SELECT count(*) AS n FROM $.runs AS r WHERE @r"


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
        """Count the runs of the scope, as they are now."""
        async with moment(self.connection, self.schema) as snapshot:
            (row,) = await snapshot.rows(_COUNT, self.scope.keys.parameters)
        return int(row["n"])

    @asynccontextmanager
    async def next(self) -> AsyncIterator[tuple[Snapshot, Batch]]:
        """Read the next runs within the block; those that come later than the batch before are met, too."""
        async with moment(self.connection, self.schema) as snapshot:
            batch = await self._batch(snapshot)
            yield snapshot, batch
        self.after = batch.keys.until
        self.is_over = self.after == self.scope.keys.until

    async def _batch(self, snapshot: Snapshot) -> Batch:
        rest = self.scope.rest(self.after)
        rows = await snapshot.rows(_RUNS, {**rest.parameters, "maximum_runs": MAXIMUM_RUNS})
        sizes = accumulate(max(row["head_sequence"], 1) for row in rows)
        fitting = max(sum(size <= MAXIMUM_EVENTS for size in sizes), 1)
        runs = [((row["tenant_id"], str(row["run_id"])), row["head_sequence"]) for row in rows[:fitting]]
        is_last = len(rows) < MAXIMUM_RUNS and len(runs) == len(rows)
        until = rest.until if is_last else runs[-1][0]
        return Batch(keys=KeyRange(self.after, until), runs=runs)
