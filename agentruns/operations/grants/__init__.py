"""Grant each role what its job needs and nothing else, and find what differs from that."""

from __future__ import annotations

from agentruns.operations.grants.audit import audit
from agentruns.operations.grants.findings import Finding
from agentruns.operations.grants.plan import GrantPlan, apply, plan
from agentruns.operations.grants.roles import GrantedRoles

__all__ = ["Finding", "GrantPlan", "GrantedRoles", "apply", "audit", "plan"]
