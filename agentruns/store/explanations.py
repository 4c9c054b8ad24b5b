"""Explain runs from their rows: whatever is damaged is left out, and nothing is verified."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import MAXYEAR, datetime
from typing import Any

from sqlalchemy import Row

from agentruns.domain.digests import Digest
from agentruns.domain.explanation.explanation import RunExplanation
from agentruns.domain.explanation.facts import (
    ClaimConditions,
    ObservedAttempt,
    ObservedGraph,
    ObservedIsolation,
    ObservedRequest,
    ObservedRun,
    ObservedWait,
)
from agentruns.domain.explanation.rules import explained
from agentruns.domain.graph.definition import CompiledGraph
from agentruns.domain.graph.results import NodeFailure
from agentruns.domain.ids import EventId, QuarantineId, RunId, WaitId
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.scalars import FailureCode, TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode
from agentruns.errors import InvalidValueError, RunNotFoundError
from agentruns.store.sender import Sender
from agentruns.store.statements import explanations as statements


class Explanations:
    """Say why runs do not progress, in one statement; in two when a run is due and nobody holds it."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def of(self, tenant_id: TenantId, run_id: RunId, *, graph_digests: Collection[Digest] | None) -> RunExplanation:
        """Explain a run.

        Args:
            tenant_id: whose run it is.
            run_id: of the run.
            graph_digests: of the graphs that this process has; ``None`` where that is not asked.

        Raises:
            RunNotFoundError: the tenant has no such run.
        """
        run, conditions = self.seen(tenant_id, run_id)
        return explained(run, conditions, graph_digests=graph_digests)

    def seen(self, tenant_id: TenantId, run_id: RunId) -> tuple[ObservedRun, ClaimConditions | None]:
        """Read what a run is explained by; the conditions of a claim where one is due.

        Raises:
            RunNotFoundError: the tenant has no such run.
        """
        named = {"of_tenant": tenant_id.text, "of_run": run_id.text}
        row = self._work.execute(statements.observed(), named).one_or_none()
        if row is None:
            raise RunNotFoundError(tenant_id=tenant_id, id=run_id)
        run = _observed(tenant_id, run_id, row)
        return run, self._conditions(run) if run.is_due else None

    def _conditions(self, run: ObservedRun) -> ClaimConditions:
        digest = None if run.graph is None else run.graph.digest
        named = {"of_tenant": run.tenant_id.text, "of_graph": digest and digest.raw}
        row = self._work.execute(statements.conditions(), named).one()
        return ClaimConditions(
            live_leases=row.live_leases,
            maximum_live=row.maximum_live,
            has_room=row.has_room,
            is_in_policy=row.is_in_policy,
            maximum_supersteps=None if digest is None else _maximum_supersteps(row.definition, digest),
        )


def _observed(tenant_id: TenantId, run_id: RunId, row: Row[Any]) -> ObservedRun:
    return ObservedRun(
        tenant_id=tenant_id,
        run_id=run_id,
        now=_instant(row.now),
        status=RunStatus(row.status),
        superstep=row.superstep,
        head_recorded_at=_instant(row.head_recorded_at),
        epoch=row.fencing_epoch,
        lease_renewed_at=_optional(row.lease_renewed_at),
        lease_expires_at=_optional(row.lease_expires_at),
        ready_at=_optional(row.scheduler_ready_at),
        not_before=_optional(row.scheduler_not_before),
        deadline_at=_optional(row.agent_deadline_at),
        graph=_graph(row),
        isolation=_isolation(row),
        request=_request(row),
        waits=tuple(map(_wait, _rows(row, "wait", statements.WAIT_COLUMNS))),
        attempts=tuple(sorted(map(_attempt, _rows(row, "attempt", statements.ATTEMPT_COLUMNS)), key=_node_id)),
    )


def _instant(value: datetime) -> Timestamp:
    """Read an instant; the driver gives the infinities as naive values, which become the outermost ones."""
    if value.tzinfo is None:
        return Timestamp.STORED_MAX if value.year == MAXYEAR else Timestamp.STORED_MIN
    return Timestamp.from_datetime(value)


def _optional(value: datetime | None) -> Timestamp | None:
    return None if value is None else _instant(value)


def _graph(row: Row[Any]) -> ObservedGraph | None:
    if row.graph_definition_digest is None:
        return None
    return ObservedGraph(digest=Digest(row.graph_definition_digest), name=row.graph_name, version=row.graph_version)


def _isolation(row: Row[Any]) -> ObservedIsolation | None:
    if row.quarantined_at is None:
        return None
    return ObservedIsolation(
        quarantined_at=_instant(row.quarantined_at),
        quarantine_id=None if row.quarantine_id is None else QuarantineId(str(row.quarantine_id)),
        cause=row.cause_kind,
        component=row.component,
    )


def _request(row: Row[Any]) -> ObservedRequest | None:
    if row.request_event_id is None:
        return None
    return ObservedRequest(
        event_id=EventId(str(row.request_event_id)),
        requested_at=_instant(row.requested_at),
        by_deadline=row.request_kind == EventKind.DEADLINE_CANCELLATION_REQUESTED.value,
    )


def _rows(row: Row[Any], prefix: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Give the rows that came as one array per column."""
    arrays = [getattr(row, f"{prefix}_{name}") or () for name in names]
    return (dict(zip(names, values, strict=True)) for values in zip(*arrays, strict=True))


def _wait(found: dict[str, Any]) -> ObservedWait:
    return ObservedWait(
        wait_id=WaitId(str(found["wait_id"])),
        kind=found["kind"],
        registered_at=_optional(found["registered_at"]),
        due_at=_optional(found["due_at"]),
        expires_at=_optional(found["expires_at"]),
    )


def _attempt(found: dict[str, Any]) -> ObservedAttempt:
    return ObservedAttempt(
        node_id=found["node_id"],
        attempt=found["attempt"],
        epoch=found["epoch"],
        started_at=_optional(found["started_at"]),
        has_failed=None if found["status"] is None else found["status"] == "failed",
        ended_at=_optional(found["ended_at"]),
        not_before=_optional(found["retry_not_before"]),
        failure_code=None if found["body"] is None else _failure_code(found["body"], found["digest"]),
    )


def _node_id(attempt: ObservedAttempt) -> str:
    return attempt.node_id


def _failure_code(body: bytes, digest: bytes) -> FailureCode | None:
    """Read the code of a failure, and nothing else of it; ``None`` where the body is not what its digest says."""
    try:
        failed = decode(body, NodeFailure)
    except InvalidValueError:
        return None
    return failed.failure.code if failed.digest.raw == digest else None


def _maximum_supersteps(definition: bytes | None, digest: Digest) -> int | None:
    """Read the limit of a graph; ``None`` where the definition is not there or not what its digest says."""
    try:
        graph = None if definition is None else CompiledGraph.restore(definition)
    except InvalidValueError:
        return None
    return graph.limits.maximum_supersteps.value if graph is not None and graph.definition_digest == digest else None
