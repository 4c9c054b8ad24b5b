"""What a run takes in the database: each body once, and as much again with each further step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import LargeBinary

from agentruns.domain.graph.returns import Continue, Finish
from agentruns.orm import Base
from agentruns.testing.drives import DriveWorld, builder

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
STEPS = 20
SMALL, LARGE = 2_000, 20_000


def growing(size: int) -> Any:
    """Make a graph whose first step brings a large state, and whose other steps update a small member."""
    graph = builder()

    @graph.node(entry=True, then="a", terminal=True)
    def a(context: Any) -> Any:
        count = context.state.get("count", 0) + 1
        first = {"large": "x" * size} if count == 1 else {}
        return Finish({}, {"count": count}) if count == STEPS else Continue({"count": count, **first})

    return graph.build()


async def stored(world: DriveWorld) -> dict[str, int]:
    """Count the bytes of the bodies of each table."""
    found = {}
    for table in Base.metadata.sorted_tables:
        binary = [column.name for column in table.columns if isinstance(column.type, LargeBinary)]
        if binary and table.name != "graph_definitions":
            total = " + ".join(f"coalesce(octet_length({name}), 0)" for name in binary)
            (row,) = await world.rows(f"SELECT coalesce(sum({total}), 0) AS bytes FROM agentruns.{table.name}")  # noqa: S608
            found[table.name] = int(row.bytes)
    return found


@pytest.mark.parametrize("size", [SMALL])
def test_L1_a_larger_state_is_stored_once_for_each_step_and_nowhere_else(in_world: InWorld, size: int) -> None:
    found: list[dict[str, int]] = []

    async def work(world: DriveWorld) -> None:
        before = await stored(world)
        await world.driven(await world.submitted())
        after = await stored(world)
        found.append({name: after[name] - before[name] for name in after})

    in_world(work, growing(size), lease=LONG)
    in_world(work, growing(10 * size), lease=LONG)
    grown = {name: found[1][name] - found[0][name] for name in found[0]}
    result = grown.pop("node_results")
    # The update that brought it stands in one result, and the state in the checkpoint after each step.
    assert result == 9 * size
    assert grown.pop("run_checkpoints") == STEPS * 9 * size
    assert {name: bytes_ for name, bytes_ in grown.items() if bytes_ > 64} == {}
