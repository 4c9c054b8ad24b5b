"""Where a run stands in its graph, as overviews and checkpoint show it: not verified, and without an application."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen
from sqlalchemy import Connection, Select, and_, false, func, select, true
from sqlalchemy.dialects.postgresql import distinct_on

from agentruns.cli.views import view
from agentruns.domain.digests import Digest
from agentruns.domain.graph.painting import LastAttempt, paint
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import NodeId, TenantId
from agentruns.domain.status import RunStatus
from agentruns.errors import RunNotFoundError

_RUN: Final = (
    "tenant_id",
    "run_id",
    "status",
    "superstep",
    "graph_definition_digest",
    "lease_epoch",
    "lease_expires_at",
)
_CHECKPOINT: Final = ("tenant_id", "run_id", "superstep", "ready")
_ATTEMPT: Final = ("tenant_id", "run_id", "superstep", "node_id", "attempt", "epoch", "status")


@frozen(kw_only=True)
class PaintedRun:
    """Say where a run stands.

    Attributes:
        run_id: which run.
        definition_digest: the graph that it pins; absent before the admission.
        status: of the run.
        superstep: in which it stands.
        marks: of the nodes that ran, run or may run.
    """

    run_id: RunId
    definition_digest: Digest | None
    status: RunStatus
    superstep: int
    marks: Mapping[NodeId, str]

    @property
    def document(self) -> dict[str, object]:
        """What a program reads."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "superstep": self.superstep,
            "marks": {node_id.text: mark for node_id, mark in self.marks.items()},
        }


def painted_run(reading: Connection, tenant_id: TenantId, run_id: RunId, *, schema: str) -> PaintedRun:
    """Read it, in one statement and therefore at one instant.

    Raises:
        RunNotFoundError: the tenant has no such run.
    """
    rows = reading.execute(_statement(tenant_id, run_id, schema=schema)).all()
    if not rows:
        raise RunNotFoundError(tenant_id=tenant_id, id=run_id)
    run, status = rows[0], RunStatus(rows[0].status)
    marks = paint(
        status=status,
        superstep=run.superstep,
        ready=[] if run.ready is None else [NodeId(text) for text in _texts(run.ready)],
        attempts={
            NodeId(row.node_id): LastAttempt(superstep=row.attempted_in, ended=row.ended, is_held=row.is_held)
            for row in rows
            if row.node_id is not None
        },
    )
    digest = None if run.graph_definition_digest is None else Digest.parse(run.graph_definition_digest)
    return PaintedRun(run_id=run_id, definition_digest=digest, status=status, superstep=run.superstep, marks=marks)


def _statement(tenant_id: TenantId, run_id: RunId, *, schema: str) -> Select[Any]:
    """Give a row for each node that ever ran, with its last attempt; one row without a node when none did."""
    run = view("run_overview", _RUN, schema=schema)
    checkpoint = view("run_checkpoints", _CHECKPOINT, schema=schema)
    attempts = view("node_overview", _ATTEMPT, schema=schema)
    last = (
        select(attempts)
        .where(attempts.c.tenant_id == run.c.tenant_id, attempts.c.run_id == run.c.run_id)
        .ext(distinct_on(attempts.c.node_id))
        .order_by(attempts.c.node_id, attempts.c.superstep.desc(), attempts.c.attempt.desc())
        .lateral("last")
    )
    is_held = and_(last.c.epoch == run.c.lease_epoch, run.c.lease_expires_at > func.clock_timestamp())
    is_current = and_(
        checkpoint.c.tenant_id == run.c.tenant_id,
        checkpoint.c.run_id == run.c.run_id,
        checkpoint.c.superstep == run.c.superstep,
    )
    return (
        select(
            run.c.status,
            run.c.superstep,
            run.c.graph_definition_digest,
            checkpoint.c.ready,
            last.c.node_id,
            last.c.superstep.label("attempted_in"),
            last.c.status.label("ended"),
            func.coalesce(is_held, false()).label("is_held"),
        )
        .select_from(run.outerjoin(checkpoint, is_current).outerjoin(last, true()))
        .where(run.c.tenant_id == tenant_id.text, run.c.run_id == run_id.text)
    )


def _texts(ready: bytes) -> list[str]:
    texts: list[str] = json.loads(ready)
    return texts
