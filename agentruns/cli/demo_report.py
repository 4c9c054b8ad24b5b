"""What the demo shows of a run in the end: read from the database, and verified."""

from __future__ import annotations

from typing import Any, Final, TypedDict

from attrs import frozen
from sqlalchemy import Uuid, column, select, table

from agentruns.cli.output import Output
from agentruns.domain.ids import RunId
from agentruns.domain.outcome import SucceededOutcome
from agentruns.domain.scalars import TenantId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.wire import to_wire
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.runtime.replay import ReplayedRun
from agentruns.store.unit_of_work import UnitOfWork

_COLUMNS: Final = ("node", "attempt", "fence_epoch", "state")


class AttemptLine(TypedDict):
    """Show one attempt of a node."""

    node: str
    attempt: int
    fence_epoch: int
    state: str


@frozen(kw_only=True)
class DemoReport:
    """Hold what the demo found out.

    Attributes:
        run_id: the candidate of the first submission.
        outcomes: of both submissions.
        snapshot: as it was loaded by the key.
        attempts: in the order of supersteps, nodes and numbers.
        replayed: the whole record, folded.
    """

    run_id: RunId
    outcomes: tuple[MutationOutcome, ...]
    snapshot: AgentRunSnapshot
    attempts: list[AttemptLine]
    replayed: ReplayedRun

    @property
    def journal_events(self) -> int:
        """Count the events of the chain."""
        return self.replayed.report.events_verified

    @property
    def is_verified(self) -> bool:
        """Whether the fold covers the whole chain and ends where the snapshot does."""
        state = self.replayed.state
        has_all = state.head is not None and state.head.sequence.value == self.journal_events
        return has_all and (state.status, state.revision) == (self.snapshot.status, self.snapshot.revision)

    def write_to(self, output: Output) -> None:
        """Write one object, or tables for people."""
        ends = {
            "run_id": str(self.run_id),
            "resolved_run_id": str(self.snapshot.provenance.run_id),
            "outcomes": [outcome.value for outcome in self.outcomes],
            "status": self.snapshot.status.value,
            "revision": self.snapshot.revision.value,
        }
        checks = {"journal_events": self.journal_events, "verified": self.is_verified}
        if output.is_json:
            outcome = to_wire(self.snapshot.outcome)
            output.document({**ends, "outcome": outcome, "attempts": self.attempts, **checks})
            return
        output.document({**ends, **checks})
        output.lines([{**attempt} for attempt in self.attempts], columns=_COLUMNS)
        output.document(_result(self.snapshot))


def attempts_of(work: UnitOfWork, tenant_id: TenantId, run_id: RunId) -> list[AttemptLine]:
    """Read the attempts of a run. One that has no result, and is not the last, was superseded by the next."""
    keys = [
        column("tenant_id"),
        column("run_id", Uuid(as_uuid=False)),
        *map(column, ("superstep", "node_id", "attempt")),
    ]
    overview = table("node_overview", *keys, column("epoch"), column("status"), schema=SCHEMA_TOKEN)
    is_meant = overview.c.tenant_id == tenant_id.text, overview.c.run_id == run_id.text
    rows = work.execute(select(overview).where(*is_meant).order_by(*keys[2:])).all()
    last = {(row.superstep, row.node_id): row.attempt for row in rows}
    return [
        AttemptLine(
            node=row.node_id,
            attempt=row.attempt,
            fence_epoch=int(row.epoch),
            state=row.status or ("running" if last[row.superstep, row.node_id] == row.attempt else "superseded"),
        )
        for row in rows
    ]


def _result(snapshot: AgentRunSnapshot) -> dict[str, Any]:
    """Show the run's output; unlike other commands the demo may, as it brought the input itself."""
    if not isinstance(snapshot.outcome, SucceededOutcome):
        return {}
    output: Any = snapshot.outcome.result.output.value
    return {
        "title": output["title"],
        "length": f"{output['words']} words in {output['lines']} lines, {output['minutes']} minutes to read",
        "priority": output["priority"],
        "pressing_words": output["pressing_words"] or None,
        "keywords": [f"{each['word']} {each['count']}" for each in output["keywords"]],
        "outline": "\n".join(output["outline"]),
        "summary": "\n".join(output["summary"]),
    }
