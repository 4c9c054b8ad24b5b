"""``agentruns tenants``: counts of what tenants have, and limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.testing.drives import TENANT, chain, open_world

Command = Callable[..., Any]
Run = Callable[[Coroutine[Any, Any, Any]], Any]

GRAPH = chain(a=lambda _context: Finish({}))
NAME = TENANT.text


def test_what_tenants_have_is_counted(agentruns: Command, owner_url: str, database_url: str, run: Run) -> None:
    async def work() -> None:
        async with open_world(owner_url, GRAPH, store_url=database_url) as world:
            first, _ = [await world.submitted() for _ in range(2)]
            await world.driven(first)

    run(work())
    agentruns("tenants", "limit", NAME, "5", "--quiet", url=database_url)
    shown = agentruns("tenants", "stats", "--format", "json", url=database_url)
    assert (shown.code, shown.err) == (0, "")
    (line,) = map(json.loads, shown.out.splitlines())
    counts = {"active": 1, "succeeded": 1, "waiting": 0, "cancellation_requested": 0, "failed": 0, "cancelled": 0}
    assert line.pop("oldest_due_at") is not None
    assert line == {"tenant_id": NAME, **counts, "quarantined": 0, "live_leases": 0, "maximum_live": 5}
    assert agentruns("tenants", "stats", "another", "--format", "json", url=database_url).out == ""


def test_a_limit_is_set_and_lifted(agentruns: Command, owner_url: str, database_url: str, run: Run) -> None:
    async def limit() -> int | None:
        async with open_world(owner_url, GRAPH, store_url=database_url) as world:
            return await world.store.tenant_limit(TENANT)

    for text, expected in (("3", 3), ("1024", 1024), ("none", None), ("none", None)):
        done = agentruns("tenants", "limit", NAME, text, "--format", "json", url=database_url)
        assert (done.code, json.loads(done.out)) == (0, {"tenant_id": NAME, "maximum_live": expected})
        assert run(limit()) == expected


@pytest.mark.parametrize("text", ["0", "1025", "007", "-1", "five", "None", "1e3"])
def test_what_is_no_limit_is_wrong_usage(agentruns: Command, database_url: str, text: str) -> None:
    done = agentruns("tenants", "limit", "--", NAME, text, url=database_url)
    assert (done.code, done.out) == (2, "")
    assert "wanted a number from 1 to 1024, or none" in done.err
