from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from attrs import fields

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.schema import JsonSchemaRegistry, JsonSchemaRegistryBuilder
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import DefinitionError, SchemaRejectedError
from agentruns.runtime import standard_schemas

RUNTIME = "https://stknot.com/schemas/runtime/"
OWN = "https://agentruns.invalid/schemas/"

EVENT_DOCUMENTS = {
    "agent-admission-event": (
        RUNTIME + "agent-admission-event/1.0.0",
        "sha256:3a37f80e5a235c35a8b477874aeec3f3078fed4031f1fddc846158d16290880b",
    ),
    "graph-driver-event": (
        RUNTIME + "graph-driver-event/1.0.0",
        "sha256:1191b2847f97fa719e42b0e687e87c2acfa5c36b944952a043ec15c1dbc83d1e",
    ),
    "graph-lifecycle-event": (
        RUNTIME + "graph-lifecycle-event/1.0.0",
        "sha256:abea4de93320c9e08a4c89af29c0c04955392f2872ef7aba9cf3fb10813fd3ae",
    ),
    "agent-cancellation-event": (
        RUNTIME + "agent-cancellation-event/1.0.0",
        "sha256:b71fce8ba7eddf7508f9a29b22b5944c771611cb3a5159dbc027950a62fa2bcf",
    ),
    "invocation-execution-event": (
        OWN + "invocation-execution-event/1.0.0",
        "sha256:f048e5cc5eedfc07170471fe1120ce8ce0099464baec98ea2405f468496baba8",
    ),
}
DETAILS = (
    OWN + "graph-failure-details/1.0.0",
    "sha256:df6825086721adadd81997e11f37c3d45dc5e5261768118ee79bbd109071af32",
)

DEFINITIONS = {
    "digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}(?!\\n)$"},
    "id": {
        "type": "string",
        "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(?!\\n)$",
    },
    "node": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}(?!\\n)$"},
    "number": {"type": "string", "pattern": "^(?:0|[1-9][0-9]{0,19})(?!\\n)$"},
    "instant": {
        "type": "string",
        "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}Z(?!\\n)$",
    },
}

DIGEST = "sha256:" + "0f" * 32
UUID = "0198c0de-0000-7000-8000-000000000001"
STEP = {"superstep": "0"}
NODE = {**STEP, "node_id": "collect", "attempt": "1"}
CALL = {"invocation_id": UUID, "number": "3", "attempt_id": UUID}
DONE = {**CALL, "body_digest": DIGEST, "charged": {}}
LATER = {"retry_not_before": "2026-01-02T03:04:05.000006Z"}
REQUEST = {**STEP, "revision": "2", "request_digest": DIGEST, "abandoned": [UUID]}
PREPARED = {**STEP, "node_id": "n", "invocation_id": UUID, "number": "0", "body_digest": DIGEST}

#: For each document each operation: its required members, and its optional ones.
OPERATIONS: dict[str, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "agent-admission-event": {
        "agent_admitted": (
            {
                f"{name}_digest": DIGEST
                for name in ("admission", "submission", "checkpoint", "graph", "input", "policy")
            },
            {},
        ),
    },
    "graph-driver-event": {
        "graph_node_attempt_started": ({**NODE, "attempt_id": UUID}, {}),
        "graph_node_attempt_succeeded": ({**NODE, "result_digest": DIGEST}, {}),
        "graph_node_attempt_failed": ({**NODE, "result_digest": DIGEST}, LATER),
        "graph_barrier_continued": ({**STEP, "checkpoint_digest": DIGEST}, {}),
    },
    "graph-lifecycle-event": {
        "graph_barrier_waiting": (
            {**STEP, "checkpoint_digest": DIGEST, "revision": "2", "waits": [{"wait_id": UUID, "digest": DIGEST}]},
            {},
        ),
        "graph_barrier_succeeded": (
            {**STEP, "checkpoint_digest": DIGEST, "revision": "2", "outcome_digest": DIGEST},
            {},
        ),
        "graph_run_failed": (
            {
                **STEP,
                "revision": "2",
                "outcome_digest": DIGEST,
                "in_flight": "0",
                "failed": "1",
                "exhausted": "1024",
                "abandoned": [],
            },
            {},
        ),
        "graph_interrupt_resolved": ({"wait_id": UUID, "revision": "3", "resolution_digest": DIGEST}, {}),
        "graph_timer_fired": ({"wait_id": UUID, "revision": "3"}, {}),
    },
    "agent-cancellation-event": {
        "agent_cancellation_requested": (REQUEST, {}),
        "agent_deadline_cancellation_requested": (REQUEST, {}),
        "agent_cancellation_confirmed": ({**STEP, "revision": "3", "outcome_digest": DIGEST}, {}),
    },
    "invocation-execution-event": {
        "model_invocation_prepared": (PREPARED, {}),
        "tool_invocation_prepared": ({**PREPARED, "risk": "read_only"}, {}),
        "model_attempt_started": (CALL, {}),
        "tool_attempt_started": (CALL, {}),
        "model_response_committed": (DONE, {}),
        "tool_result_committed": (DONE, {}),
        "model_error_committed": (DONE, {**LATER, "reserved": {"input_tokens": "5"}}),
        "tool_error_committed": ({**DONE, "effect": "unknown"}, LATER),
        "tool_result_reconciled": (DONE, {}),
        "tool_error_reconciled": ({**DONE, "effect": "applied"}, LATER),
    },
}

CASES = [(name, operation) for name, operations in OPERATIONS.items() for operation in operations]


@pytest.fixture(scope="module")
def schemas() -> JsonSchemaRegistry:
    builder = JsonSchemaRegistryBuilder()
    standard_schemas.register_standard_schemas(builder)
    return builder.build()


def accepts(schemas: JsonSchemaRegistry, uri: str, tree: Any) -> bool:
    reference = next(reference for reference in schemas.references if str(reference.id) == uri)
    try:
        schemas.validate(reference, BoundedJson.of(tree, JsonLimits.DEFAULT))
    except SchemaRejectedError:
        return False
    return True


def tree_of(name: str) -> dict[str, Any]:
    tree = json.loads(files("agentruns.schemas").joinpath(f"{name}-1.0.0.json").read_text())
    assert isinstance(tree, dict)
    return tree


def test_all_documents_are_registered(schemas: JsonSchemaRegistry) -> None:
    installed = {(str(reference.id), str(reference.digest)) for reference in schemas.references}
    assert {*EVENT_DOCUMENTS.values(), DETAILS} <= installed
    assert {str(reference.version) for reference in schemas.references} == {"1.0.0"}
    on_disk = [path for path in files("agentruns.schemas").iterdir() if path.name.endswith(".json")]
    assert len(schemas.references) == len(on_disk)


@pytest.mark.parametrize(
    ("register", "expected"),
    [
        ("register_standard_agent_admission_event_schema", [EVENT_DOCUMENTS["agent-admission-event"]]),
        ("register_standard_graph_driver_event_schema", [DETAILS, EVENT_DOCUMENTS["graph-driver-event"]]),
        ("register_standard_graph_lifecycle_event_schema", [EVENT_DOCUMENTS["graph-lifecycle-event"]]),
        ("register_standard_agent_cancellation_event_schema", [EVENT_DOCUMENTS["agent-cancellation-event"]]),
        ("register_standard_invocation_event_schema", [EVENT_DOCUMENTS["invocation-execution-event"]]),
    ],
)
def test_single_functions(register: str, expected: list[tuple[str, str]]) -> None:
    builder = JsonSchemaRegistryBuilder()
    reference = getattr(standard_schemas, register)(builder)
    installed = builder.build().references
    assert [(str(each.id), str(each.digest)) for each in installed] == expected
    assert reference == installed[-1]


def test_a_document_is_not_registered_twice() -> None:
    builder = JsonSchemaRegistryBuilder()
    standard_schemas.register_standard_agent_admission_event_schema(builder)
    with pytest.raises(DefinitionError) as caught:
        standard_schemas.register_standard_schemas(builder)
    assert caught.value.reason == "duplicate_reference"


@pytest.mark.parametrize("name", EVENT_DOCUMENTS)
def test_shape_of_event_documents(name: str) -> None:
    tree = tree_of(name)
    assert list(tree) == ["$schema", "$id", "$defs", "oneOf"]
    assert tree["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert tree["$defs"] == DEFINITIONS
    assert [each["properties"]["operation"]["const"] for each in tree["oneOf"]] == list(OPERATIONS[name])
    for each in tree["oneOf"]:
        required, optional = OPERATIONS[name][each["properties"]["operation"]["const"]]
        assert each["type"] == "object"
        assert each["additionalProperties"] is False
        assert each["required"] == ["operation", *required]
        assert list(each["properties"]) == ["operation", *required, *optional] or set(each["properties"]) == {
            "operation",
            *required,
            *optional,
        }


@pytest.mark.parametrize(("name", "operation"), CASES)
def test_exactly_the_members_of_an_operation(schemas: JsonSchemaRegistry, name: str, operation: str) -> None:
    uri = EVENT_DOCUMENTS[name][0]
    required, optional = OPERATIONS[name][operation]
    least = {"operation": operation, **required}
    assert accepts(schemas, uri, least)
    assert accepts(schemas, uri, least | optional)
    assert not accepts(schemas, uri, least | {"other": "1"})
    assert not accepts(schemas, uri, least | {"operation": "agent_something_else"})
    for member, stated in least.items():
        assert not accepts(schemas, uri, {key: value for key, value in least.items() if key != member})
        assert not accepts(schemas, uri, least | {member: None})
        assert not accepts(schemas, uri, least | {member: 1})
        if isinstance(stated, str):
            assert not accepts(schemas, uri, least | {member: stated + "\n"})


@pytest.mark.parametrize(
    ("operation", "change", "accepted"),
    [
        ("graph_node_attempt_started", {"superstep": "01"}, False),
        ("graph_node_attempt_started", {"superstep": "1" * 20}, True),
        ("graph_node_attempt_started", {"superstep": "1" * 21}, False),
        ("graph_node_attempt_started", {"node_id": ".a"}, False),
        ("graph_node_attempt_started", {"node_id": "a" * 128}, True),
        ("graph_node_attempt_started", {"node_id": "a" * 129}, False),
        ("graph_node_attempt_started", {"attempt_id": "0198c0de-0000-4000-8000-000000000001"}, False),
        ("graph_node_attempt_failed", {"retry_not_before": "2026-01-02T03:04:05Z"}, False),
        ("graph_barrier_waiting", {"waits": []}, False),
        ("graph_barrier_waiting", {"waits": [{"wait_id": UUID, "digest": DIGEST}] * 64}, True),
        ("graph_barrier_waiting", {"waits": [{"wait_id": UUID, "digest": DIGEST}] * 65}, False),
        ("graph_barrier_waiting", {"waits": [{"wait_id": UUID, "digest": DIGEST, "kind": "x"}]}, False),
        ("graph_barrier_waiting", {"waits": [{"wait_id": UUID}]}, False),
        ("graph_run_failed", {"abandoned": [UUID] * 64}, True),
        ("graph_run_failed", {"abandoned": [UUID] * 65}, False),
        ("tool_invocation_prepared", {"risk": "non_idempotent_write"}, True),
        ("tool_invocation_prepared", {"risk": "write"}, False),
        ("tool_error_committed", {"effect": "not_applied"}, True),
        ("tool_error_committed", {"effect": "none"}, False),
        ("model_response_committed", {"charged": {"input_tokens": "5", "output_tokens": "0"}}, True),
        ("model_response_committed", {"charged": {"input_tokens": 5}}, False),
        ("model_response_committed", {"charged": {"tokens": "5"}}, False),
        ("model_response_committed", {"charged": {"known_costs": [{"currency": "EUR", "micro_units": "5"}]}}, True),
        ("model_response_committed", {"charged": {"known_costs": [{"currency": "eur", "micro_units": "5"}]}}, False),
        ("model_response_committed", {"charged": {"known_costs": []}}, False),
        ("model_response_committed", {"charged": {"unpriced_cost_events": "1"}}, True),
        ("model_error_committed", {"reserved": {}}, True),
        ("model_error_committed", {"reserved": {"output_tokens": "5", "input_tokens": "1"}}, True),
        ("model_error_committed", {"reserved": {"reasoning_tokens": "5"}}, False),
    ],
)
def test_values_of_members(
    schemas: JsonSchemaRegistry, operation: str, change: dict[str, Any], *, accepted: bool
) -> None:
    name = next(name for name, operations in OPERATIONS.items() if operation in operations)
    tree = {"operation": operation, **OPERATIONS[name][operation][0], **change}
    assert accepts(schemas, EVENT_DOCUMENTS[name][0], tree) is accepted


def test_charged_has_the_members_of_usage() -> None:
    members = {attribute.name for attribute in fields(BudgetUsage)}
    for each in tree_of("invocation-execution-event")["oneOf"]:
        if charged := each["properties"].get("charged"):
            assert set(charged["properties"]) == members
            assert "required" not in charged


@pytest.mark.parametrize(
    ("tree", "accepted"),
    [
        ({"reason": "update_rejected"}, True),
        ({"exception_type": "package.module.Error"}, True),
        ({"exception_type": "test.<locals>.Error"}, True),
        ({"reason": "Update rejected"}, False),
        ({"reason": "update_rejected\n"}, False),
        ({"exception_type": "a" * 128}, True),
        ({"exception_type": "a" * 129}, False),
        ({"reason": "a", "exception_type": "b"}, False),
        ({"reason": "a", "other": "b"}, False),
        ({}, False),
        ("reason", False),
    ],
)
def test_failure_details(schemas: JsonSchemaRegistry, tree: Any, *, accepted: bool) -> None:
    assert accepts(schemas, DETAILS[0], tree) is accepted


def test_patterns_do_not_use_unicode_classes() -> None:
    for name in EVENT_DOCUMENTS:
        text = json.dumps(tree_of(name))
        assert not re.search(r"\\\\[dws]", text)
