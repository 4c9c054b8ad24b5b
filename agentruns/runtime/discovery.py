"""Look for work of this process's graphs: a tenant's runs in line, and the tenants that have some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentruns.domain.scalars import TenantId
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.store import AgentRunStore
from agentruns.store.discovery import ReadyCursor, ReadyPage
from agentruns.store.options import check_count

#: Runs or tenants of one page at most.
PAGE: Final = 64


class DurableRunDiscovery:
    """Say what could be claimed now, and change nothing; by the time of a claim others may have taken it."""

    def __init__(self, store: AgentRunStore, executables: ExecutableGraphRegistry) -> None:
        self._store = store
        self._graph_digests = executables.graph_digests

    async def discover_ready(
        self, tenant_id: TenantId, *, limit: int = PAGE, cursor: ReadyCursor | None = None
    ) -> ReadyPage:
        """List a tenant's runs that this process could claim, in the order in which it would, for people and tests.

        The tenant's limit is left aside. All pages of a list are judged at the instant of the first: a run that becomes
        ready meanwhile is in none of them, and one that was claimed meanwhile is in no later one.

        Args:
            tenant_id: whose runs.
            limit: runs of the page, 1..64.
            cursor: of the page before; the list begins where none is given.

        Raises:
            InvalidOptionError: ``limit`` is out of its bound.
            TypeError: an argument is of another type.
        """
        check_argument("tenant_id", tenant_id, TenantId)
        check_count("limit", limit, low=1, high=PAGE)
        if cursor is not None:
            check_argument("cursor", cursor, ReadyCursor)
        digests = self._graph_digests
        return await self._store.read(
            lambda work: work.discovery.ready_runs(tenant_id, digests, limit=limit, cursor=cursor)
        )

    async def ready_among(self, tenants: Sequence[TenantId]) -> tuple[TenantId, ...]:
        """Say which of these tenants have a run that could be claimed now, in their order."""
        return await self._store.read(lambda work: work.discovery.ready_among(tenants, self._graph_digests))

    async def due_among(self, tenants: Sequence[TenantId]) -> tuple[TenantId, ...]:
        """Say for which of these tenants a tick of supervision would find something, in their order."""
        return await self._store.read(lambda work: work.discovery.due_among(tenants, self._graph_digests))

    async def ready_tenants(self, *, after: TenantId | None = None, limit: int = PAGE) -> tuple[TenantId, ...]:
        """Find tenants that have a run which could be claimed now, whoever they are.

        They come in the order of their ids, from the one that follows ``after`` on and around to ``after`` itself;
        fewer than ``limit`` are all there are. It costs what there are tenants with runs to claim, however many each
        has.

        Args:
            after: the tenant whose successor is first; from the beginning where none is given.
            limit: tenants, 1..64.

        Raises:
            InvalidOptionError: ``limit`` is out of its bound.
            TypeError: an argument is of another type.
        """
        _check(after, limit)
        return await self._store.read(
            lambda work: work.discovery.ready_tenants(self._graph_digests, after=after, limit=limit)
        )

    async def due_tenants(self, *, after: TenantId | None = None, limit: int = PAGE) -> tuple[TenantId, ...]:
        """Find tenants for which a tick of supervision would find something, whoever they are.

        They come in the order of their ids, from the one that follows ``after`` on and not around; fewer than ``limit``
        are the last. It costs what there are tenants with a deadline, a timer or an interrupt that expires.

        Arguments and errors are those of :meth:`ready_tenants`.
        """
        _check(after, limit)
        return await self._store.read(
            lambda work: work.discovery.due_tenants(self._graph_digests, after=after, limit=limit)
        )


def _check(after: TenantId | None, limit: int) -> None:
    if after is not None:
        check_argument("after", after, TenantId)
    check_count("limit", limit, low=1, high=PAGE)
