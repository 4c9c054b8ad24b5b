"""Runs in every state, and an audit of them under a reader's privileges."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.ids import RunId
from agentruns.operations.audit import EVERYTHING, AuditProgress, AuditScope, Finding, audit_runs
from agentruns.testing.drives import DriveWorld
from agentruns.testing.mixed_runs import MIXED_STATES, mixed_graph

#: Longer than any test.
LEASE = timedelta(minutes=5)


@define
class Audited:
    """A world with runs in it, and what an audit says of them.

    Attributes:
        runs: ids by state.
    """

    world: DriveWorld
    runs: dict[str, list[RunId]] = field(factory=dict)
    progress: AuditProgress = field(factory=AuditProgress)

    async def bring(self, count: int = 1, *names: str) -> None:
        """Bring so many runs into each of these states, or into every one."""
        for name in names or MIXED_STATES:
            made = [await MIXED_STATES[name](self.world) for _ in range(count)]
            self.runs.setdefault(name, []).extend(made)

    async def findings(self, scope: AuditScope = EVERYTHING, **options: Any) -> list[Finding]:
        """Audit a scope."""
        engine = create_async_engine(self.world.store_url, poolclass=NullPool)
        try:
            async with engine.connect() as connection:
                found = audit_runs(connection, scope, on_progress=self._tell, **options)
                return [finding async for finding in found]
        finally:
            await engine.dispose()

    def _tell(self, progress: AuditProgress) -> None:
        self.progress = progress


@pytest.fixture
def audited(in_world: Any) -> Callable[..., None]:
    """Run a test over a world whose runs are audited: ``audited(work)``."""

    def call(work: Callable[[Audited], Coroutine[Any, Any, None]], **options: Any) -> None:
        async def opened(world: DriveWorld) -> None:
            await work(Audited(world))

        in_world(opened, mixed_graph(), lease=LEASE, **options)

    return call
