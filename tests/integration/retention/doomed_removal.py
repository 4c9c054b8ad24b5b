"""A process that removes runs until a test kills it: ``python doomed_removal.py URL``."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from agentruns.operations.retention import RetentionPolicy, remove_runs
from agentruns.runtime.engine import create_engine
from agentruns.store.options import StoreOptions
from agentruns.testing.samples import TENANT

HOUR = timedelta(hours=1)
POLICY = RetentionPolicy(keep_succeeded=HOUR, keep_failed=HOUR, keep_cancelled=HOUR, retry_guarantee=HOUR)


async def work(url: str) -> None:
    """Remove all that may go."""
    engine = create_engine(
        url, StoreOptions(lock_timeout=timedelta(seconds=50), statement_timeout=timedelta(minutes=1))
    )
    async with engine.connect() as connection:
        await connection.run_sync(lambda sync: list(remove_runs(sync, POLICY, tenant_id=TENANT)))


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
