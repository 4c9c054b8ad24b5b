"""A loop that tells when enough runs have succeeded durably: nobody has to ask the database for it."""

from __future__ import annotations

import asyncio
from typing import Any

from agentruns.runtime.agent_loop import AgentLoopOutcome, AgentLoopResult, DurableAgentLoop
from agentruns.runtime.held_lease import HeldLease
from agentruns.runtime.shutdown import ShutdownSignal


class CountingLoop(DurableAgentLoop):
    """Drive runs as usual, and count those that have succeeded."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._left = 0
        self._done = asyncio.Event()

    def expect(self, count: int) -> None:
        """Begin to count."""
        self._left = count
        self._done.clear()

    async def all_succeeded(self) -> None:
        """Return when as many runs as were expected have succeeded."""
        await self._done.wait()

    async def run(self, held: HeldLease, shutdown: ShutdownSignal) -> AgentLoopResult:
        """Drive one run, and count it."""
        result = await super().run(held, shutdown)
        self._left -= result.outcome is AgentLoopOutcome.SUCCEEDED
        if not self._left:
            self._done.set()
        return result
