"""Waits: each with what settled it, and those whose instant has come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from attrs import frozen
from sqlalchemy import RowMapping, Select

from agentruns.domain.digests import Digest
from agentruns.domain.ids import RunId, WaitId
from agentruns.domain.run_ends import StoredEvent
from agentruns.domain.run_waits import StoredWaitRow
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import instant, moment
from agentruns.store.sender import Sender
from agentruns.store.sets import POSITION
from agentruns.store.statements import due
from agentruns.store.statements import waits as statements
from agentruns.store.statements.ends import EVENT_COLUMNS

_BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)
_LEAST_ID: Final = "00000000-0000-0000-0000-000000000000"


@frozen(kw_only=True)
class WaitLookup:
    """Ask for waits of a run."""

    tenant_id: TenantId
    run_id: RunId
    wait_ids: tuple[WaitId, ...]


@frozen(kw_only=True)
class Due:
    """Something whose instant has come, in the order of its index; it is also the place after which a list goes on.

    Attributes:
        at: the instant.
        wait_id: of a wait; ``None`` for a run's deadline.
        now: the database's clock.
    """

    run_id: RunId
    wait_id: WaitId | None
    at: Timestamp
    now: Timestamp


class Waits:
    """Read what runs wait for."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def find(self, lookups: Sequence[WaitLookup]) -> tuple[tuple[StoredWaitRow | None, ...], ...]:
        """Read waits, in the order asked for; ``None`` where the run has no such wait."""
        rows = [(each.tenant_id.text, each.run_id.text, wait.text) for each in lookups for wait in each.wait_ids]
        found: list[StoredWaitRow | None] = [None] * len(rows)
        for row in self._work.execute(statements.find_waits(), statements.ITEMS.parameters(rows)).mappings():
            found[row[POSITION] - 1] = _stored(row)
        in_order = iter(found)
        return tuple(tuple(islice(in_order, len(each.wait_ids))) for each in lookups)

    def timers(
        self, tenant_id: TenantId, *, graph_digests: Sequence[Digest], after: Due | None, limit: int
    ) -> tuple[Due, ...]:
        """List timers that are due, of graphs that this process has."""
        return self._list(due.due_waits("due_at"), tenant_id, after, limit, graph_digests)

    def interrupts(
        self, tenant_id: TenantId, *, graph_digests: Sequence[Digest], after: Due | None, limit: int
    ) -> tuple[Due, ...]:
        """List interrupts that have expired, of graphs that this process has."""
        return self._list(due.due_waits("expires_at"), tenant_id, after, limit, graph_digests)

    def deadlines(self, tenant_id: TenantId, *, after: Due | None, limit: int) -> tuple[Due, ...]:
        """List runs whose deadline is over and whose end nobody has asked for."""
        return self._list(due.overdue_runs(), tenant_id, after, limit, None)

    def _list(
        self,
        statement: Select[Any],
        tenant_id: TenantId,
        after: Due | None,
        limit: int,
        graph_digests: Sequence[Digest] | None,
    ) -> tuple[Due, ...]:
        values: dict[str, Any] = {
            "tenant_id": tenant_id.text,
            "limit": limit,
            "after_at": _BEGINNING if after is None else moment(after.at),
            "after_run": _LEAST_ID if after is None else after.run_id.text,
        }
        if graph_digests is not None:
            values["graph_digests"] = [digest.raw for digest in graph_digests]
            values["after_wait"] = _LEAST_ID if after is None or after.wait_id is None else after.wait_id.text
        return tuple(_due(row) for row in self._work.execute(statement, values))


def _stored(row: RowMapping) -> StoredWaitRow:
    names = (*EVENT_COLUMNS, "previous")
    is_settled = row["event_sequence"] is not None
    event = StoredEvent(**{name: row[f"event_{name}"] for name in names}) if is_settled else None
    return StoredWaitRow(**{name: row[f"wait_{name}"] for name in statements.WAIT_COLUMNS}, event=event)


def _due(row: Any) -> Due:
    wait_id = getattr(row, "wait_id", None)
    return Due(
        run_id=RunId(str(row.run_id)),
        wait_id=None if wait_id is None else WaitId(str(wait_id)),
        at=instant(row.at),
        now=instant(row.now),
    )
