"""Know which leases this process drives already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from agentruns.domain.lease import RunFence
from agentruns.errors import NotYetAvailableError


@define
class DrivenFences:
    """Keep a second drive of a process away from a fence: it would take the nodes of the first one for orphans."""

    _fences: set[RunFence] = field(factory=set, init=False)

    @contextmanager
    def driving(self, fence: RunFence) -> Iterator[None]:
        """Drive a fence within the block.

        Raises:
            NotYetAvailableError: ``driven_here``.
        """
        if fence in self._fences:
            raise NotYetAvailableError(tenant_id=fence.tenant_id, run_id=fence.run_id, reason="driven_here")
        self._fences.add(fence)
        try:
            yield
        finally:
            self._fences.discard(fence)
