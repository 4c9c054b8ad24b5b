"""Tell whoever records how far apart the turns of a tenant are. Where nobody does, nothing is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentruns.domain.fairness import FairnessCycle
from agentruns.domain.scalars import ShardId, TenantId
from agentruns.errors import StoreError
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.telemetry.counts import turns_apart
from agentruns.runtime.telemetry.state import found

#: As long as the longest cycle: a tenant whose last turn was before that has not been waiting for this one.
_FARTHEST: Final = 4_096


class FairDistances:
    """Know the last turn of each tenant of a shard, whichever process reserved it.

    What others have reserved since this process's last turn is read, once, and only where there is any.
    """

    def __init__(self, store: AgentRunStore, shard_id: ShardId, cycle: FairnessCycle) -> None:
        self._store = store
        self._shard_id = shard_id
        self._cycle = cycle
        self._last: dict[TenantId, int] = {}
        self._next = 0

    async def tell(self, turns: Sequence[tuple[int, TenantId]]) -> None:
        """Record the distance of each turn from its tenant's last one; nothing where that is out of sight.

        Args:
            turns: the sequence of each and whose it is, in order, without a gap. Those told of before are left out.
        """
        first = turns[0][0]
        if found() is None or first < self._next:
            return
        try:
            await self._catch_up(first)
        except StoreError:
            return  # the turns are reserved all the same, and what lies before them is read with the next ones
        distances = []
        for sequence, tenant_id in turns:
            last = self._last.get(tenant_id)
            if last is not None and sequence - last <= _FARTHEST:
                distances.append(sequence - last)
            self._last[tenant_id] = sequence
        self._next = turns[-1][0] + 1
        turns_apart(distances)

    async def _catch_up(self, before: int) -> None:
        since = max(self._next, before - _FARTHEST)
        if since == before:
            return
        passed = await self._store.run(lambda work: work.fairness.passed(self._shard_id, since=since, before=before))
        self._last.update((self._cycle.turns[slot], sequence) for sequence, slot in passed)
