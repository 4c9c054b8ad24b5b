"""What the strategies draw is legal, and Hypothesis is needed for nothing else that users read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.ids import AttemptId
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import AgentRunIds
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.testing import strategies
from agentruns.testing.strategies import (
    BehavingGraph,
    behaving_graphs,
    documents_of,
    json_objects,
    run_ids,
    schema_documents,
    submission_keys,
    tenant_ids,
    uuid_ids,
)

TESTING = Path(strategies.__file__).parents[1]


@given(submission_keys(), tenant_ids(), run_ids(), uuid_ids(AttemptId))
def test_names_come_back_from_their_text(
    key: AgentSubmissionKey, tenant: TenantId, ids: AgentRunIds, attempt_id: AttemptId
) -> None:
    assert AgentSubmissionKey.parse(key.text) == key
    assert TenantId.parse(tenant.text) == tenant
    assert AttemptId.parse(attempt_id.text) == attempt_id
    assert len({str(each) for each in (ids.run_id, ids.thread_id, ids.invocation_id)}) >= 1


@given(st.data())
def test_documents_satisfy_their_schema(data: st.DataObject) -> None:
    schema = data.draw(schema_documents())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(data.draw(documents_of(schema)))


@given(json_objects())
def test_objects_are_bounded_json(tree: dict[str, Any]) -> None:
    assert isinstance(BoundedJson.of(tree).value, dict)


@given(behaving_graphs())
@settings(max_examples=20)
def test_a_graph_that_can_be_run_has_a_behaviour_for_each_node(graph: BehavingGraph) -> None:
    nodes = [str(node.node_id) for node in graph.executable.definition.nodes]
    assert sorted(graph.behaviours) == nodes
    assert sum(each.always is not None for each in graph.behaviours.values()) <= 1
    assert "flowchart TD" in repr(graph)


def test_hypothesis_is_needed_only_where_something_is_drawn() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in TESTING.rglob("*.py")}
    drawing = {path.parent.name for path, text in sources.items() if "hypothesis import" in text}
    assert drawing == {"strategies", "machines", "laws"}
    simulations = [text for path, text in sources.items() if path.parent.name == "simulation"]
    assert not any(f"agentruns.testing.{name}" in text for text in simulations for name in drawing)
