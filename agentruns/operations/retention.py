"""Remove runs that nobody needs any more, say beforehand which, and prove afterwards what was removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeVar

from attrs import frozen
from sqlalchemy import Connection

from agentruns.domain.ids import ReceiptId
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.errors import InvalidOptionError
from agentruns.operations.retention_batches import HeldRun, Removal, RetentionBatch
from agentruns.operations.retention_policy import RetentionPolicy
from agentruns.operations.retention_transactions import RetentionTransactions
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.retry import as_store_error
from agentruns.store.retention import RetentionReceipt, Terms
from agentruns.store.statements.retention_reads import PAGE, Cause

__all__ = [
    "HeldRun",
    "RetentionBatch",
    "RetentionPlan",
    "RetentionPolicy",
    "RetentionReceipt",
    "plan_retention",
    "remove_runs",
    "retention_receipts",
]

T = TypeVar("T")


@frozen(kw_only=True)
class RetentionPlan:
    """Count the runs of a tenant that may go now.

    Attributes:
        quarantined: those that are quarantined, whatever their status; no other count has them.
        event_count: events of all these runs.
    """

    tenant_id: TenantId
    succeeded: int
    failed: int
    cancelled: int
    quarantined: int
    event_count: int


def remove_runs(
    connection: Connection,
    policy: RetentionPolicy,
    *,
    tenant_id: TenantId | None = None,
    all_tenants: bool = False,
    schema: str = SCHEMA_TOKEN,
) -> Iterator[RetentionBatch | HeldRun]:
    """Remove runs with all that belongs to them, and give each batch once it is committed, and each run that stays.

    Runs that somebody else holds are passed over and named when the others of their tenant are gone; call again.

    Whoever stops iterating, or is killed, loses the batch under way at most; the next call goes on. Several processes
    may remove at once and share the work. With an asynchronous engine:
    ``await connection.run_sync(lambda c: list(remove_runs(c, policy, tenant_id=tenant)))``.

    Args:
        connection: open, and in no transaction; its isolation becomes READ COMMITTED. Under the retention role, whose
            privileges suffice.
        policy: which runs may go.
        tenant_id: whose runs go; or else ``all_tenants``, which has to be said.
        all_tenants: remove runs of every tenant.
        schema: the database schema.

    Raises:
        InvalidOptionError: neither a tenant was named nor all of them, or both.
        TypeError: an argument is of another type.
        SchemaVerificationError: the schema has tables of runs that this release does not know, or lacks one.
        StoreUnavailableError: the database's trouble passes; call again.
    """
    named = _named(tenant_id, all_tenants=all_tenants)
    check_argument("policy", policy, RetentionPolicy)
    return _translated(_removed(RetentionTransactions(connection, schema), policy, named), schema)


def plan_retention(
    connection: Connection,
    policy: RetentionPolicy,
    *,
    tenant_id: TenantId | None = None,
    all_tenants: bool = False,
    schema: str = SCHEMA_TOKEN,
) -> Iterator[RetentionPlan]:
    """Count what :func:`remove_runs` would remove, were nothing to refer to it; tenants without such runs are left out.

    Arguments and errors are the same.
    """
    named = _named(tenant_id, all_tenants=all_tenants)
    check_argument("policy", policy, RetentionPolicy)
    return _translated(_planned(RetentionTransactions(connection, schema), policy, named), schema)


def retention_receipts(
    connection: Connection, tenant_id: TenantId, *, schema: str = SCHEMA_TOKEN
) -> Iterator[RetentionReceipt]:
    """Read what was removed of a tenant, oldest first.

    Raises:
        TypeError: an argument is of another type.
    """
    check_argument("tenant_id", tenant_id, TenantId)
    return _translated(_receipts(RetentionTransactions(connection, schema), tenant_id), schema)


def _named(tenant_id: TenantId | None, *, all_tenants: bool) -> TenantId | None:
    """Refuse to guess: everything is removed only where everything was said."""
    if (tenant_id is None) is not all_tenants:
        value = "neither" if tenant_id is None else "both"
        raise InvalidOptionError(option="tenant_id", value=value, bound="a tenant, or all_tenants=True")
    if tenant_id is not None:
        check_argument("tenant_id", tenant_id, TenantId)
    return tenant_id


def _removed(
    transactions: RetentionTransactions, policy: RetentionPolicy, named: TenantId | None
) -> Iterator[RetentionBatch | HeldRun]:
    for terms in _terms(transactions, policy, named):
        for cause in _causes(policy):
            yield from Removal(transactions=transactions, terms=terms, cause=cause).steps()


def _planned(
    transactions: RetentionTransactions, policy: RetentionPolicy, named: TenantId | None
) -> Iterator[RetentionPlan]:
    for terms in _terms(transactions, policy, named):
        counts = Counter[str]()
        for cause in _causes(policy):
            for run in transactions.removable(terms, cause):
                counts["quarantined" if cause == "isolated" else run.status.value] += 1
                counts["events"] += run.event_count
        if counts:
            yield _plan(terms.tenant_id, counts)


def _plan(tenant_id: TenantId, counts: Mapping[str, int]) -> RetentionPlan:
    return RetentionPlan(
        tenant_id=tenant_id,
        succeeded=counts[RunStatus.SUCCEEDED.value],
        failed=counts[RunStatus.FAILED.value],
        cancelled=counts[RunStatus.CANCELLED.value],
        quarantined=counts["quarantined"],
        event_count=counts["events"],
    )


def _receipts(transactions: RetentionTransactions, tenant_id: TenantId) -> Iterator[RetentionReceipt]:
    after: ReceiptId | None = None
    while True:
        with transactions.begun() as retention:
            page = retention.receipts(tenant_id, after=after)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].receipt_id


def _terms(transactions: RetentionTransactions, policy: RetentionPolicy, named: TenantId | None) -> Iterator[Terms]:
    """Apply the policy to the tenant that was named, or to each that has runs, one after the other."""
    transactions.check_tables()
    if named is not None:
        yield policy.terms_for(named)
        return
    tenant_id: TenantId | None = None
    while (tenant_id := _next_tenant(transactions, tenant_id)) is not None:
        yield policy.terms_for(tenant_id)


def _next_tenant(transactions: RetentionTransactions, after: TenantId | None) -> TenantId | None:
    with transactions.begun() as retention:
        return retention.next_tenant(after)


def _causes(policy: RetentionPolicy) -> tuple[Cause, ...]:
    return ("ended", "isolated") if policy.include_quarantined else ("ended",)


def _translated(steps: Iterator[T], schema: str) -> Iterator[T]:
    """Raise errors of ours in place of the database's, whose text and parameters stay inside."""
    with as_store_error(schema):
        yield from steps
