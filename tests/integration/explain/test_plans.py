"""An explanation reads rows by their keys: its cost does not follow the history of a run, nor the runs of others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Select

from agentruns.store.statements import explanations

Within = Callable[[str, Callable[[Connection], Any]], Any]


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes_of(child)


def planned(connection: Connection, statement: Select[Any]) -> list[dict[str, Any]]:
    """Plan a statement once for all values, as if every table were long."""
    sql = str(statement.compile(dialect=connection.dialect))
    values = ", ".join(["NULL"] * max(int(number) for number in re.findall(r"\$(\d+)", sql)))
    for setting in ("plan_cache_mode = force_generic_plan", "enable_seqscan = off"):
        connection.exec_driver_sql(f"SET LOCAL {setting}")
    connection.exec_driver_sql(f"PREPARE asked AS {sql}")
    found = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({values})").scalar_one()
    connection.exec_driver_sql("DEALLOCATE asked")
    return list(nodes_of(found[0]["Plan"]))


_OF_A_RUN = {
    "graph_definitions",
    "node_attempts",
    "node_results",
    "run_events",
    "run_outcomes",
    "run_quarantine_releases",
    "run_quarantines",
    "run_waits",
    "runs",
}
_OF_A_CLAIM = {"graph_definitions", "runs", "tenant_limits", "tenant_slots"}
#: Read as a whole: there are as many as policies were published.
_POLICIES = "scheduler_fairness_shards"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [(explanations.observed(), _OF_A_RUN), (explanations.conditions(), _OF_A_CLAIM)],
    ids=["a run", "the conditions of a claim"],
)
def test_every_table_but_that_of_policies_is_read_by_an_index(
    within: Within, owner_url: str, statement: Select[Any], expected: set[str]
) -> None:
    nodes = within(owner_url, lambda connection: planned(connection, statement))
    read = [node for node in nodes if node.get("Relation Name", _POLICIES) != _POLICIES]
    assert {node["Relation Name"] for node in read} == expected
    assert [node for node in read if "tenant_id" not in node.get("Index Cond", "")] == []
