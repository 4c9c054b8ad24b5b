"""OPS-11: what telemetry is given holds names, ids, codes and counts, and nothing of what runs are about."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import EventId
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import AgentSubmissionConflictError, RunQuarantinedError, SchemaRejectedError
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, DriveWorld, builder, chain

InWorld = Callable[..., None]

SECRET = "planted-7d1f"  # noqa: S105  # planted to be looked for
LONG = timedelta(minutes=1)
#: All that an attribute may be called.
ALLOWED = frozenset(
    "agentruns." + name
    for name in (
        *("tenant_id", "run_id", "node_id", "attempt", "attempt_id", "graph", "graph_version", "superstep", "epoch"),
        *("status", "outcome", "cause", "error", "lane", "job", "sqlstate_class"),
        *("attempts", "bytes", "commits", "count", "events", "rows", "supersteps", "windows"),
    )
)


def exported(telemetry: Any) -> str:
    """Give all that left the library, as text; the application's own spans aside."""
    spans = [json.loads(span.to_json()) for span in telemetry.ended if span.name.startswith("agentruns.")]
    assert spans
    return json.dumps(spans) + str(telemetry.points())


def names_in(telemetry: Any) -> set[str]:
    of_spans = {name for span in telemetry.ended for name in span.attributes if span.name.startswith("agentruns.")}
    return of_spans | {name for found in telemetry.points().values() for key in found for name, _ in key}


def test_OPS_11_no_content_of_a_run_leaves_the_library(in_world: InWorld, telemetry: Any) -> None:
    def a(context: Any) -> dict[str, str]:
        assert context.state == {}
        return {"found": SECRET}

    def b(context: Any) -> Finish:
        if context.state["found"] != SECRET:
            raise AssertionError
        return Finish({"answer": SECRET})

    async def work(world: DriveWorld) -> None:
        key = AgentSubmissionKey(f"{SECRET}-key-of-twenty-two-characters")
        admitted = await world.runs.submit(key, world.request({"prompt": SECRET}))
        with pytest.raises(AgentSubmissionConflictError):
            await world.runs.submit(key, world.request({"prompt": SECRET + "2"}))
        run_id = admitted.snapshot.provenance.run_id
        await world.driven(run_id)
        assert SECRET in repr((await world.loaded(run_id)).outcome.result.output.value)  # type: ignore[union-attr]
        await world.runs.load_by_key(TENANT, key)
        assert SECRET not in exported(telemetry)
        assert names_in(telemetry) <= ALLOWED

    in_world(work, chain(a=a, b=b), lease=LONG)


def test_OPS_11_neither_does_what_a_node_raises(in_world: InWorld, telemetry: Any) -> None:
    def a(_context: Any) -> None:
        raise RuntimeError(SECRET) from ValueError(SECRET)

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.driven(run_id)
        cancelled = await world.submitted()
        failure = samples.cancellation(message=SECRET)
        await world.runs.request_cancellation(TENANT, cancelled, event_id=EventId.generate(), failure=failure)
        await world.driven(cancelled)
        assert [dict(each.attributes)["agentruns.status"] for each in telemetry.named("agentruns.lifecycle")] == [
            "failed",
            "cancelled",
        ]
        assert SECRET not in exported(telemetry)
        assert names_in(telemetry) <= ALLOWED

    in_world(work, chain(a=a), lease=LONG)


def test_OPS_11_neither_does_what_a_schema_rejects_nor_a_damaged_record(in_world: InWorld, telemetry: Any) -> None:
    graph = builder()
    graph.node(name="a", entry=True, terminal=True)(lambda _context: Finish({}))

    async def work(world: DriveWorld) -> None:
        with pytest.raises(SchemaRejectedError):
            await world.runs.admit(world.request([SECRET]))
        run_id = await world.submitted()
        await world.rows("UPDATE agentruns.run_checkpoints SET state = convert_to(:state, 'UTF8')", state=SECRET)
        with pytest.raises(RunQuarantinedError):
            await world.driven(run_id)
        assert SECRET not in exported(telemetry)
        assert names_in(telemetry) <= ALLOWED

    in_world(work, graph.build(), lease=LONG)
