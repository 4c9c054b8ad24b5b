"""What a deployment puts into a request; no database is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentruns import (
    AgentAdmissionBudgetLayer,
    BudgetLimits,
    Deployment,
    DurableAgentAdmissionRequest,
    Finish,
    GraphBuilder,
    GraphNodeContext,
    InvalidValueError,
    PrincipalIdentity,
    TenantId,
)
from agentruns.domain.authority import EVIDENCE_KIND, SYSTEM_DEFAULT_SOURCE
from agentruns.domain.scalars import SubjectId
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.uris import IssuerId
from agentruns.errors import DefinitionError, ExecutableGraphUnavailableError, InvalidOptionError
from agentruns.runtime.deployment_grant import grant_schema
from agentruns.testing import samples

TENANT = TenantId("acme")
CUSTOMER = PrincipalIdentity(issuer=IssuerId("https://shop.example/"), subject=SubjectId("customer-1"))


def request_of(shop: Any, **changes: Any) -> DurableAgentAdmissionRequest:
    arguments: dict[str, Any] = {"tenant_id": TENANT, "input": {"text": "a b"}, **changes}
    request: DurableAgentAdmissionRequest = shop.deployment.build().request(shop.triage, **arguments)
    return request


def test_equal_arguments_make_equal_content_with_fresh_ids(shop: Any) -> None:
    first, second = request_of(shop), request_of(shop)
    assert first.submission_digest == second.submission_digest
    assert first.ids != second.ids
    assert first.intent.authority == second.intent.authority


@pytest.mark.parametrize(
    "change",
    [
        {"input": {"text": "a c"}},
        {"state": {"text": "a c"}},
        {"tenant_id": TenantId("other")},
        {"principal": CUSTOMER},
        {"granted_scopes": ("orders:read",)},
        {"budget_limits": BudgetLimits.of(tool_calls=1)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_argument_is_content(shop: Any, change: dict[str, Any]) -> None:
    assert request_of(shop).submission_digest != request_of(shop, **change).submission_digest


def test_the_run_begins_with_its_input_unless_a_state_is_given(shop: Any) -> None:
    assert request_of(shop).initial_state.data.value == {"text": "a b"}
    assert request_of(shop, state={"text": "c", "words": 0}).initial_state.data.value == {"text": "c", "words": 0}


def test_agent_and_graph_have_the_same_identity_and_schemas(shop: Any) -> None:
    intent = request_of(shop).intent
    assert intent.descriptor.metadata.identity == intent.graph.identity
    assert intent.graph.identity.owner == shop.deployment.owner
    assert intent.descriptor.model is None


def test_the_grant_says_what_was_granted_and_satisfies_its_schema(shop: Any) -> None:
    graphs = shop.deployment.build()
    authority = request_of(shop, principal=CUSTOMER, granted_scopes=("b", "a")).intent.authority
    assert (authority.principal, authority.granted_scopes) == (CUSTOMER, ScopeSet.of("a", "b"))
    assert (authority.evidence.kind, authority.evidence.schema) == (EVIDENCE_KIND, grant_schema())
    assert authority.evidence.data.value == {
        "agent": {"name": "triage", "version": "1.0.0"},
        "granted_scopes": ["a", "b"],
        "graph_digest": str(graphs.compiled(shop.triage).definition_digest),
        "tenant_id": "acme",
    }
    graphs.executables.schemas.validate(grant_schema(), authority.evidence.data)


def test_the_owner_is_the_principal_by_default(shop: Any) -> None:
    assert request_of(shop).intent.authority.principal == shop.deployment.owner


def test_the_systems_layer_is_always_there() -> None:
    limits = BudgetLimits.of(tool_calls=3)
    policy = samples.budget_layer("shop-policy", limits=limits)
    deployment = Deployment(
        issuer="https://shop.example/", subject="x", costs={"EUR": 5_000_000}, budget_layers=[policy]
    )
    graph = deployment.add(GraphBuilder("g", "1.0.0", input={}, state={}, output={}))

    @graph.node(entry=True, terminal=True)
    def end(_context: GraphNodeContext) -> Finish:
        return Finish(None)

    intent = deployment.build().request(graph, tenant_id=TENANT, input=None, state={}).intent
    system = AgentAdmissionBudgetLayer.system_default(costs={"EUR": 5_000_000})
    assert set(intent.budget_layers) == {system, policy}
    assert int(intent.budget.tool_calls) == 3
    assert system.source == SYSTEM_DEFAULT_SOURCE


def test_schemas_come_from_a_dict_a_file_and_a_class(tmp_path: Path) -> None:
    class Order:
        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}

    (tmp_path / "state.json").write_text(json.dumps({"type": "object"}))
    deployment = Deployment(issuer="https://shop.example/", subject="x")
    graph = deployment.add(
        GraphBuilder("g", "1.0.0", input=Order, state=tmp_path / "state.json", output={"type": "null"})
    )

    @graph.node(entry=True, terminal=True)
    def end(_context: GraphNodeContext) -> Finish:
        return Finish(None)

    graphs = deployment.build()
    request = graphs.request(graph, tenant_id=TENANT, input={"order": 1})
    compiled = graphs.compiled(graph)
    assert request.intent.request.input_schema == compiled.input_schema
    installed = graphs.executables.schemas.references
    assert {compiled.input_schema, compiled.state_schema, compiled.update_schema, compiled.output_schema} <= set(
        installed
    )


def test_a_bundle_is_a_graph_too(shop: Any) -> None:
    deployment = Deployment(issuer="https://shop.example/", subject="other")
    bundle = deployment.add(shop.triage.build(owner=shop.deployment.owner))
    request = deployment.build().request(bundle, tenant_id=TENANT, input={"text": "a"})
    assert request.intent.graph == bundle.graph.reference


def test_a_graph_that_was_not_added_is_not_known(shop: Any) -> None:
    stranger = GraphBuilder("stranger", "1.0.0", input={}, state={}, output={})
    with pytest.raises(ExecutableGraphUnavailableError) as caught:
        shop.deployment.build().request(stranger, tenant_id=TENANT, input=None)
    assert (caught.value.reason, str(caught.value.graph)) == ("not_installed", "stranger")


@pytest.mark.parametrize("wrong", ["triage", None, 5, {"id": "secret"}, GraphBuilder])
def test_what_is_no_graph_is_refused_by_name(shop: Any, wrong: Any) -> None:
    sentence = f"pass graph as a GraphBuilder or GraphBundle, not {type(wrong).__name__}"
    with pytest.raises(TypeError) as requested:
        shop.deployment.build().request(wrong, tenant_id=TENANT, input=None)
    with pytest.raises(TypeError) as added:
        shop.deployment.add(wrong)
    assert str(requested.value) == str(added.value) == sentence


@pytest.mark.parametrize("wrong", ["", "01890000-0000-7000-8000-000000000000", ("a", "b"), {"run_id": "x"}, 0])
def test_what_are_no_ids_is_refused_by_name(shop: Any, wrong: Any) -> None:
    with pytest.raises(TypeError) as caught:
        request_of(shop, ids=wrong)
    assert str(caught.value) == f"pass ids as AgentRunIds, not {type(wrong).__name__}"


def test_what_is_no_mapping_of_costs_or_no_layer_is_refused_by_name() -> None:
    for arguments, sentence in (
        ({"costs": "EUR"}, "pass costs as Mapping, not str"),
        ({"costs": ["EUR"]}, "pass costs as Mapping, not list"),
        ({"budget_layers": ["EUR"]}, "pass budget_layers as AgentAdmissionBudgetLayer, not str"),
    ):
        wrong: dict[str, Any] = arguments
        with pytest.raises(TypeError) as caught:
            Deployment(issuer="https://shop.example/", subject="x", **wrong)
        assert str(caught.value) == sentence


def test_a_deployment_without_graphs_is_refused() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        Deployment(issuer="https://shop.example/", subject="x").build()
    assert (caught.value.option, caught.value.reason) == ("graphs", "empty")


def test_two_contents_of_one_version_are_refused(shop: Any) -> None:
    bundle = shop.triage.build(owner=shop.deployment.owner)
    shop.deployment.add(bundle)
    with pytest.raises(DefinitionError) as caught:
        shop.deployment.build()
    assert (caught.value.kind, caught.value.reason) == ("registry", "duplicate_graph")


@pytest.mark.parametrize(("issuer", "subject"), [("shop", "x"), ("https://shop.example/", "")])
def test_an_owner_that_is_none_is_refused(issuer: str, subject: str) -> None:
    with pytest.raises(InvalidValueError):
        Deployment(issuer=issuer, subject=subject)
