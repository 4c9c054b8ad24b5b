"""Two processes of one run iterate over the same set in another order."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agentruns.domain.explanation.explanation import ReasonCode
from agentruns.domain.ids import RunId
from agentruns.domain.outcome import SucceededOutcome
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.testing.drives import TENANT, open_world

pytestmark = pytest.mark.slow

Run = Callable[[Coroutine[Any, Any, Any]], Any]

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("hash_seeded_worker.py")
GRAPH: Callable[[str], GraphBundle] = runpy.run_path(str(SCRIPT))["graph"]
LONG = timedelta(minutes=1)


def driven(url: str, run_ids: Mapping[str, RunId], *, seed: int, events: int) -> list[str]:
    """Drive a run of each shape in a process of its own, and give what it says."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    runs = [f"{shape}={run_id}" for shape, run_id in run_ids.items()]
    command = [sys.executable, str(SCRIPT), url, str(events), *runs]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)  # noqa: S603  # our own
    return ended.stdout.splitlines()


def test_G5_the_order_of_a_set_in_a_reducer_isolates_a_run_and_in_a_node_it_is_a_fact(
    database_url: str, owner_url: str, run: Run
) -> None:
    async def begun(shape: str) -> RunId:
        async with open_world(owner_url, GRAPH(shape), store_url=database_url, lease=LONG) as world:
            return await world.submitted()

    async def left() -> tuple[Any, list[str], Any, str]:
        async with open_world(owner_url, GRAPH("node"), store_url=database_url, lease=LONG) as world:
            (found,) = await world.rows(
                "SELECT run_id::text, superstep, status, component FROM agentruns.runs"
                " JOIN agentruns.run_quarantines USING (tenant_id, run_id)"
            )
            kinds = await world.rows(
                "SELECT kind FROM agentruns.run_events WHERE run_id = cast(:id AS uuid) ORDER BY sequence",
                id=found.run_id,
            )
            outcome = (await world.loaded(run_ids["node"])).outcome
            assert isinstance(outcome, SucceededOutcome)
            reasons = (await world.runs.explain(TENANT, run_ids["reducer"])).reasons
            said = next(each.sentence for each in reasons if each.code is ReasonCode.QUARANTINED).rpartition(": ")[2]
            return tuple(found), [row.kind for row in kinds], outcome.result.output.value, said

    run_ids = {shape: run(begun(shape)) for shape in ("reducer", "node")}
    first, *rest = driven(database_url, run_ids, seed=1, events=4)
    assert rest == ["reducer yielded", "node yielded"]
    second, *rest = driven(database_url, run_ids, seed=2, events=64)
    assert first != second
    # No node of the run that does not verify was called.
    assert rest == ["reducer isolated for barrier:superstep-0", "node middle", "node succeeded"]
    isolated, kinds, output, said = run(left())
    # The run stands at the superstep after the one whose barrier does not verify.
    assert isolated == (str(run_ids["reducer"]), 1, "active", "barrier:superstep-0")
    assert said == "integrity_failure in barrier:superstep-0."
    assert kinds == [
        "agent-admitted",
        "graph-node-attempt-started",
        "graph-node-attempt-succeeded",
        "graph-barrier-continued",
    ]
    assert output == {"place": first.removeprefix("first name-")}
