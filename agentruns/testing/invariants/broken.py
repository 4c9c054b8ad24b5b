"""Turn what breaks a law into a failed assertion."""

from __future__ import annotations

from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.operations.audit import AuditScope, Finding, breaches
from agentruns.operations.audit.law import Law, WholeLaw

#: Findings that an error holds; what breaks a law in so many places is not read to its end.
MOST_FINDINGS: Final = 20


class BrokenLawError(AssertionError):
    """Stored rows break a law.

    Attributes:
        findings: the first places where, at most twenty. They hold nothing private.
    """

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__("\n".join(each.sentence for each in findings))
        self.findings = findings


async def insist(law: Law | WholeLaw, connection: AsyncConnection, scope: AuditScope, schema: str) -> None:
    """Fail unless the law holds over a scope.

    Raises:
        BrokenLawError: it does not.
    """
    findings: list[Finding] = []
    async for finding in breaches(law, connection, scope, schema=schema):
        findings.append(finding)
        if len(findings) == MOST_FINDINGS:
            break
    if findings:
        raise BrokenLawError(tuple(findings))
