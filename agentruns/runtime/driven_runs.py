"""What a worker drives at this moment."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta

from attrs import frozen

from agentruns.domain.identity import CapabilityReference
from agentruns.domain.ids import RunId
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.scalars import NodeId, TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.driver.node_task import NodeTask
from agentruns.runtime.held_lease import HeldLease


@frozen(kw_only=True)
class DrivenRun:
    """A run whose lease this worker holds.

    Attributes:
        epoch: of the claim.
        claimed_at: when, by the database's clock.
        age: how long ago that was, monotonic.
        graph: name and version of the run's graph, while nodes of it execute.
        nodes: whose code executes now, in the order of their ids; none while something is read or committed.
    """

    tenant_id: TenantId
    run_id: RunId
    epoch: FencingEpoch
    claimed_at: Timestamp
    age: timedelta
    graph: CapabilityReference | None = None
    nodes: tuple[NodeId, ...] = ()


def driven_runs(held: Iterable[HeldLease], executing: Iterable[NodeTask]) -> tuple[DrivenRun, ...]:
    """Give the runs of some leases, the one that was claimed first before the others, with what executes of each."""
    tasks_of: dict[tuple[TenantId, RunId], list[NodeTask]] = {}
    for task in executing:
        tasks_of.setdefault((task.context.tenant_id, task.context.run_id), []).append(task)
    now = time.monotonic()
    runs = [_driven(each, tasks_of.get((each.fence.tenant_id, each.fence.run_id), []), now) for each in held]
    return tuple(sorted(runs, key=lambda run: run.age, reverse=True))


def _driven(held: HeldLease, tasks: list[NodeTask], now: float) -> DrivenRun:
    return DrivenRun(
        tenant_id=held.fence.tenant_id,
        run_id=held.fence.run_id,
        epoch=held.fence.epoch,
        claimed_at=held.lease.acquired_at,
        age=timedelta(seconds=now - held.sent_at),
        graph=tasks[0].graph.definition.identity.capability if tasks else None,
        nodes=tuple(sorted(task.context.node_id for task in tasks)),
    )
