"""Audit a database: every law that stored rows can show, streamed, without writing anything."""

from agentruns.operations.audit.auditing import AuditProgress, audit_runs
from agentruns.operations.audit.breaches import breaches
from agentruns.operations.audit.findings import Finding
from agentruns.operations.audit.scope import EVERYTHING, AuditSample, AuditScope

__all__ = ["EVERYTHING", "AuditProgress", "AuditSample", "AuditScope", "Finding", "audit_runs", "breaches"]
