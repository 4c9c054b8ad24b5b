"""Whose runs a worker's idle slots are for."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Protocol

from agentruns.domain.ids import ReservationId
from agentruns.domain.scalars import TenantId
from agentruns.errors import InvalidOptionError
from agentruns.runtime.discovery import DurableRunDiscovery
from agentruns.runtime.fair_shard import FairShard


class TenantTurns(Protocol):
    """Deal idle slots to tenants that have work."""

    async def deal(self, idle: int) -> Mapping[TenantId, int]:
        """Say how many runs of which tenants to claim, ``idle`` together; nothing when nobody has work."""
        ...


class TenantRotation:
    """Deal slots to the tenants that have work, one each in the order of their ids, from the last one's successor on.

    Each process rotates for itself. A tenant with any backlog delays another one's run by at most one turn of each
    tenant that has work.

    Args:
        discovery: says who has work.
        tenants: whose turns; all that have work where none are given, those that come later too.
    """

    def __init__(self, discovery: DurableRunDiscovery, tenants: Sequence[TenantId] | None = None) -> None:
        self._discovery = discovery
        self._tenants = None if tenants is None else tuple(sorted(set(tenants)))
        self._last: TenantId | None = None

    async def deal(self, idle: int) -> Mapping[TenantId, int]:
        """Look for who has work, and deal; a tenant that was named alone is not looked for."""
        if self._tenants is not None and len(self._tenants) == 1:
            return {self._tenants[0]: idle}
        turns = list(islice(cycle(await self._ring(idle)), idle))
        if turns:
            self._last = turns[-1]
        return Counter(turns)

    async def _ring(self, idle: int) -> Sequence[TenantId]:
        """Say who has work, from the last one's successor around to itself: all of them, or as many as are idle."""
        if self._tenants is None:
            return await self._discovery.ready_tenants(after=self._last, limit=idle)
        ready = await self._discovery.ready_among(self._tenants)
        after = 0 if self._last is None else bisect_right(ready, self._last)
        return [*ready[after:], *ready[:after]]


class FairTurns:
    """Deal slots by the shared cycle of a shard: in proportion to weights, over all processes together.

    The policy is published at the first deal.

    Args:
        discovery: says who has work.
        tenants: whose turns; all that have a weight where none are given.
        shard: the cycle.

    Raises:
        InvalidOptionError: one of the tenants has no weight.
    """

    def __init__(
        self, discovery: DurableRunDiscovery, tenants: Sequence[TenantId] | None = None, *, shard: FairShard
    ) -> None:
        named = shard.tenants if tenants is None else tuple(sorted(set(tenants)))
        without = sorted(set(named) - set(shard.tenants))
        if without:
            bound = "a policy with a weight for each tenant"
            raise InvalidOptionError(option="tenants", reason="no_weight", value=str(without[0]), bound=bound)
        self._discovery = discovery
        self._tenants = named
        self._shard = shard
        self._is_published = False

    async def deal(self, idle: int) -> Mapping[TenantId, int]:
        """Look for who has work, and reserve a turn for each slot; where nobody has, nothing is reserved."""
        if not self._is_published:
            await self._shard.publish()
            self._is_published = True
        ready = await self._discovery.ready_among(self._tenants)
        if not ready:
            return {}
        turns = await self._shard.reserve([ReservationId.generate() for _ in range(idle)], ready)
        return Counter(turn.tenant_id for turn in turns)
