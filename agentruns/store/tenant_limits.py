"""Limits of tenants: how many of their leases may live at once."""

from __future__ import annotations

from agentruns.domain.scalars import TenantId
from agentruns.store.sender import Sender
from agentruns.store.statements import tenant_slots as statements


class TenantLimits:
    """Set and read the limits of tenants. Claims keep them, each in its own statement."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def set(self, tenant_id: TenantId, maximum_live: int | None) -> None:
        """Set a tenant's limit, or none."""
        parameters = {"of_tenant": tenant_id.text, "maximum": maximum_live}
        self._work.execute(statements.set_limit(), parameters).one()

    def of(self, tenant_id: TenantId) -> int | None:
        """Read a tenant's limit."""
        found: int | None = self._work.execute(
            statements.limit_of(), {"of_tenant": tenant_id.text}
        ).scalar_one_or_none()
        return found
