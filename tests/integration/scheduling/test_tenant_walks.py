"""Who has work is found without knowing anybody, by steps from tenant to tenant, whatever each has waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import AttemptId
from agentruns.domain.scalars import TenantId
from agentruns.runtime.discovery import DurableRunDiscovery
from agentruns.store.statements import due, ready
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]
Within = Callable[[str, Callable[[Connection], Any]], Any]

LONG = timedelta(minutes=1)
GRAPH = chain(a=lambda _context: Finish({}))
DIGEST = GRAPH.graph.reference.definition_digest

#: Copies of one run, dealt to so many tenants; every tenth tenant has deadlines, which lie ahead.
COPIES = """
INSERT INTO agentruns.runs SELECT (jsonb_populate_record(r, jsonb_build_object(
  'run_id', '01890000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'),
  'tenant_id', 't' || lpad((n % :tenants)::text, 4, '0'),
  'agent_deadline_at', CASE WHEN n % :tenants % 10 = 0 THEN r.changed_at + interval '1 d' END))).*
FROM agentruns.runs AS r, generate_series(1, :count) AS s (n)
"""


async def spread(world: DriveWorld, *, tenants: int, count: int) -> None:
    """Copy one run to many tenants, and take the run itself away."""
    run_id = await world.submitted()
    await world.rows(COPIES, tenants=tenants, count=count)
    await world.rows("DELETE FROM agentruns.runs WHERE run_id = cast(:run_id AS uuid)", run_id=run_id.text)
    await world.rows("ANALYZE agentruns.runs")


def named(*numbers: int) -> tuple[TenantId, ...]:
    return tuple(TenantId(f"t{number:04}") for number in numbers)


def test_tenants_are_found_in_a_ring_from_the_successor_of_one_around_to_itself(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        discovery = DurableRunDiscovery(world.store, world.executables)
        assert await discovery.ready_tenants() == ()
        await spread(world, tenants=5, count=15)
        await world.rows("UPDATE agentruns.runs SET quarantined_at = now() WHERE tenant_id = 't0003'")
        assert await discovery.ready_tenants() == named(0, 1, 2, 4)
        assert await discovery.ready_tenants(after=named(1)[0]) == named(2, 4, 0, 1)
        assert await discovery.ready_tenants(after=named(3)[0]) == named(4, 0, 1, 2)
        assert await discovery.ready_tenants(after=named(4)[0], limit=2) == named(0, 1)
        assert await discovery.ready_tenants(after=TenantId("A"), limit=2) == named(0, 1)
        assert await discovery.ready_tenants(after=TenantId("z"), limit=4) == named(0, 1, 2, 4)
        await world.store.set_tenant_limit(named(2)[0], 1)
        ids, digests = [AttemptId.generate()], world.executables.graph_digests
        await world.store.claim_ready(named(2)[0], 1, attempt_ids=ids, graph_digests=digests)
        assert await discovery.ready_tenants() == await discovery.ready_among(named(0, 1, 2, 4)) == named(0, 1, 4)

    in_world(work, GRAPH, lease=LONG)


def rows_read(url: str, within: Within, sql: str, values: Sequence[object]) -> tuple[int, int]:
    """Run a statement, and count what it answered and the rows that it took from tables and indexes."""

    def work(connection: Connection) -> tuple[int, int]:
        connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        (found,) = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", tuple(values)).scalar_one()
        return found["Plan"]["Actual Rows"], sum(_rows_of(found["Plan"]))

    answer: tuple[int, int] = within(url, work)
    return answer


def _rows_of(plan: dict[str, Any]) -> list[int]:
    passed = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) if "Relation Name" in plan else 0
    below = [count for child in plan.get("Plans", ()) for count in _rows_of(child)]
    return [round(passed * plan["Actual Loops"]), *below]


@pytest.mark.parametrize("knows", [True, False], ids=["fresh statistics", "stale statistics"])
@pytest.mark.parametrize(("limit", "tenants"), [(64, 40), (5, 40)])
def test_a_walk_costs_what_it_visits_whatever_anybody_has_waiting(
    in_world: InWorld, within: Within, limit: int, tenants: int, *, knows: bool
) -> None:
    async def work(world: DriveWorld) -> None:
        await world.rows("ALTER TABLE agentruns.runs SET (autovacuum_enabled = off)")
        await spread(world, tenants=tenants, count=8_000)
        await world.rows(
            "UPDATE agentruns.runs SET status = 'succeeded', scheduler_ready_at = NULL WHERE tenant_id > 't0009'"
            " AND run_id < '01890000-0000-7000-8000-000000001f00'"
        )
        if knows:
            await world.rows("ANALYZE agentruns.runs")
        urls.append(world.url)

    urls: list[str] = []
    in_world(work, GRAPH, lease=LONG)
    found = min(limit, tenants)
    values: dict[str, object] = {"graph_digests": [DIGEST.raw], "after": "t0030", "limit": limit}
    for statement, answered in ((ready.ready_tenants(), found), (due.due_tenants(), 0)):
        compiled = statement.compile(dialect=_dialect(urls[0], within))
        parameters = compiled.construct_params(values)
        sent = [parameters[name] for name in compiled.positiontup or ()]
        rows, read = rows_read(urls[0], within, str(compiled), sent)
        assert rows == answered
        # A step and a probe for each tenant, and one step that finds nobody.
        assert read <= 2 * (tenants if answered == 0 else found) + 2


def _dialect(url: str, within: Within) -> Any:
    return within(url, lambda connection: connection.dialect)
