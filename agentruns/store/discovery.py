"""Find what may be claimed and who has work. What is found is advice: the statement that acts decides anew."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import instant, moment
from agentruns.store.sender import Sender
from agentruns.store.statements import backlog, due, ready

_BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)
_LEAST_ID: Final = "00000000-0000-0000-0000-000000000000"


@frozen(kw_only=True)
class ReadyRun:
    """A run that may be claimed.

    Attributes:
        available_at: since when; its place in line.
        graph_digest: of the graph that it pins.
    """

    run_id: RunId
    available_at: Timestamp
    graph_digest: Digest


@frozen(kw_only=True)
class ReadyCursor:
    """Say where a list of ready runs goes on.

    Attributes:
        cutoff_at: the instant at which all pages of a list are judged.
        available_at: of the last run that was listed.
        run_id: of the same run.
    """

    cutoff_at: Timestamp
    available_at: Timestamp
    run_id: RunId


@frozen(kw_only=True)
class ReadyPage:
    """Some of a tenant's ready runs, in the order in which they would be claimed.

    Attributes:
        cutoff_at: the database's clock when the first page was read: what becomes ready later is in no page.
        cursor: what the next page is asked for with; ``None`` after the last one.
    """

    runs: tuple[ReadyRun, ...]
    cutoff_at: Timestamp
    cursor: ReadyCursor | None


@frozen(kw_only=True)
class Backlog:
    """How much waits for workers, each counted up to 10 000.

    Attributes:
        due: runs that may be claimed now.
        oldest_due: how long the first of them has been due; zero without any.
        without_worker: of these, runs of graphs that this process does not have.
        quarantined: runs that are isolated.
    """

    due: int
    oldest_due: timedelta
    without_worker: int
    quarantined: int


class Discovery:
    """Look for work by the database's clock, and lock nothing."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def ready_runs(
        self, tenant_id: TenantId, graph_digests: Sequence[Digest], *, limit: int, cursor: ReadyCursor | None
    ) -> ReadyPage:
        """List a tenant's ready runs whose graph is among those given, oldest first."""
        parameters = {
            "of_tenant": tenant_id.text,
            "graph_digests": _raw(graph_digests),
            "limit": limit,
            "cutoff_at": None if cursor is None else moment(cursor.cutoff_at),
            "after_at": _BEGINNING if cursor is None else moment(cursor.available_at),
            "after_run": _LEAST_ID if cursor is None else cursor.run_id.text,
        }
        rows = self._work.execute(ready.ready_runs(), parameters).all()
        cutoff_at = instant(rows[0].now)
        runs = tuple(_ready_run(row) for row in rows if row.run_id is not None)
        is_last = len(runs) < limit
        return ReadyPage(runs=runs, cutoff_at=cutoff_at, cursor=None if is_last else _after(runs[-1], cutoff_at))

    def ready_among(self, tenants: Sequence[TenantId], graph_digests: Sequence[Digest]) -> tuple[TenantId, ...]:
        """Find which tenants have a ready run whose graph is among those given, in the order of the tenants."""
        return self._among(ready.ready_among(), tenants, graph_digests)

    def due_among(self, tenants: Sequence[TenantId], graph_digests: Sequence[Digest]) -> tuple[TenantId, ...]:
        """Find which tenants time has decided something for, in the order of the tenants."""
        return self._among(due.due_among(), tenants, graph_digests)

    def ready_tenants(
        self, graph_digests: Sequence[Digest], *, after: TenantId | None, limit: int
    ) -> tuple[TenantId, ...]:
        """Find tenants with a ready run, whoever they are: by their ids, from the successor of one and around to it."""
        return self._tenants(ready.ready_tenants(), graph_digests, after, limit)

    def due_tenants(
        self, graph_digests: Sequence[Digest], *, after: TenantId | None, limit: int
    ) -> tuple[TenantId, ...]:
        """Find tenants that time has decided something for, whoever they are: by their ids, after one of them."""
        return self._tenants(due.due_tenants(), graph_digests, after, limit)

    def backlog(self, tenants: Sequence[TenantId] | None, graph_digests: Sequence[Digest]) -> Backlog:
        """Measure what waits of the tenants given, of all where none are."""
        parameters: dict[str, Any] = {"graph_digests": _raw(graph_digests)}
        if tenants is None:
            found = self._work.execute(backlog.backlog_of_all(), parameters).one()
        else:
            parameters |= backlog.TENANTS.parameters([(tenant.text,) for tenant in tenants])
            found = self._work.execute(backlog.backlog(), parameters).one()
        return Backlog(
            due=found.due,
            oldest_due=timedelta(0) if found.oldest_at is None else found.now - found.oldest_at,
            without_worker=found.without_worker,
            quarantined=found.quarantined,
        )

    def _among(
        self, statement: Any, tenants: Sequence[TenantId], graph_digests: Sequence[Digest]
    ) -> tuple[TenantId, ...]:
        parameters = {
            **ready.TENANTS.parameters([(tenant.text,) for tenant in tenants]),
            "graph_digests": _raw(graph_digests),
        }
        return tuple(tenants[n - 1] for (n,) in self._work.execute(statement, parameters))

    def _tenants(
        self, statement: Any, graph_digests: Sequence[Digest], after: TenantId | None, limit: int
    ) -> tuple[TenantId, ...]:
        parameters = {
            "graph_digests": _raw(graph_digests),
            "after": "" if after is None else after.text,
            "limit": limit,
        }
        return tuple(map(TenantId, self._work.execute(statement, parameters).scalars()))


def _raw(digests: Sequence[Digest]) -> list[bytes]:
    return [digest.raw for digest in digests]


def _ready_run(row: Any) -> ReadyRun:
    return ReadyRun(
        run_id=RunId(str(row.run_id)), available_at=instant(row.available_at), graph_digest=Digest(row.graph_digest)
    )


def _after(run: ReadyRun, cutoff_at: Timestamp) -> ReadyCursor:
    return ReadyCursor(cutoff_at=cutoff_at, available_at=run.available_at, run_id=run.run_id)
