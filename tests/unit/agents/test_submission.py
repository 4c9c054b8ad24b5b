"""What a caller keeps, and the digests by which a retry is recognised."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve, fields

from agentruns.domain.authority import AgentAdmissionBudgetLayer
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.digests import Digest, DigestPurpose, digest_body, digest_members
from agentruns.domain.ids import RunId
from agentruns.domain.json_limits import MIB
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import (
    AgentRunIds,
    DurableAgentAdmissionRequest,
    GraphState,
    MutationOutcome,
    key_digest,
    keyless_digest,
)
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.wire import decode, encode, from_json, from_wire, to_json, to_wire
from agentruns.errors import InvalidValueError
from agentruns.testing.model_samples import instruction, model_agent
from agentruns.testing.samples import (
    TENANT,
    admission_request,
    agent,
    agent_request,
    authority,
    budget_layer,
    graph_reference,
    graph_state,
    run_ids,
    sample_id,
    schema_reference,
)

KEY = AgentSubmissionKey("0123456789abcdef")
GOLDEN_SUBMISSION = "sha256:3df2eec21accefcd95f2673cea8f46be4188bb81959ff129993a653cbf65882a"
GOLDEN_ADMISSION = "sha256:734f5c0e4d10f82b9c90b5b3d9ced5e1932395de99f206937761ebe7c7afd940"


def test_golden_a_key_is_hashed_within_its_tenant() -> None:
    assert str(key_digest(TENANT, KEY)) == "sha256:374e0fcb468ec6196e5f7a4559fb84da9157dcf7bd78548367ff0bc64385c823"
    other = key_digest(TenantId("tenant-b"), KEY)
    assert str(other) == "sha256:963a19c15bea0978240472d4f8c7f39ab1a2fb5d351d68371ea0a53f749d1d00"


def test_the_preimage_of_a_key_is_tenant_nul_key() -> None:
    assert key_digest(TENANT, KEY) == digest_body(DigestPurpose.SUBMISSION_KEY, b"tenant-a\x000123456789abcdef")


def test_golden_an_admission_without_a_key_has_the_digest_of_its_run() -> None:
    digest = keyless_digest(TENANT, sample_id(RunId, 1))
    assert str(digest) == "sha256:b18618fd912877c5fc8e12e7c4eafc8725bfb1d51d68b84ab4999bcb786cff49"


def test_golden_a_state_is_hashed_as_the_body_of_a_checkpoint() -> None:
    digest = graph_state({}).state_digest
    assert str(digest) == "sha256:b1f0f802f1ddfde0d2b8148db293a6d86b67e375306c05bde132a24301fcdd45"
    assert graph_state({}).digest != digest


def members_of(request: DurableAgentAdmissionRequest) -> dict[str, Any]:
    """State the preimage of a submission digest as trees, each member encoded anew."""
    intent = request.intent
    return {
        "tenant_id": intent.provenance.tenant_id.text,
        "descriptor": to_wire(intent.descriptor),
        "request": to_wire(intent.request),
        "budget_layers": [to_wire(layer) for layer in intent.budget_layers],
        "budget": to_wire(intent.budget),
        "graph": to_wire(intent.graph),
        "authority": to_wire(intent.authority),
        "initial_state": to_wire(request.initial_state),
    }


def test_the_submission_digest_is_that_of_its_members() -> None:
    request = admission_request(request=agent_request(input={"é": [1.5, None]}), initial_state=graph_state({"a": 1}))
    assert request.submission_digest == digest_members(DigestPurpose.SUBMISSION, members_of(request))


def test_golden_the_submission_and_admission_of_the_samples() -> None:
    request = admission_request()
    assert str(request.submission_digest) == GOLDEN_SUBMISSION
    assert str(request.admission_digest) == GOLDEN_ADMISSION


def test_other_ids_are_the_same_submission() -> None:
    assert admission_request(1).submission_digest == admission_request(2).submission_digest
    assert admission_request(1).admission_digest != admission_request(2).admission_digest


@pytest.mark.parametrize(
    "members",
    [
        {"tenant_id": TenantId("tenant-b")},
        {"descriptor": agent("another-agent")},
        {"descriptor": agent(budget_limits=BudgetLimits.of(retries=1_024))},
        {"request": agent_request(input="other")},
        {"request": agent_request(budget_limits=BudgetLimits.of(retries=1_024))},
        {"budget_layers": (AgentAdmissionBudgetLayer.system_default(costs={"EUR": 0}),)},
        {
            "budget_layers": (
                AgentAdmissionBudgetLayer.system_default(),
                budget_layer(limits=BudgetLimits.of(retries=1_024)),
            )
        },
        {"graph": graph_reference("another-graph")},
        {"granted": authority(evidence="other")},
        {"initial_state": graph_state("other")},
    ],
    ids=lambda members: next(iter(members)),
)
def test_any_other_content_is_another_submission(members: Any) -> None:
    assert admission_request(**members).submission_digest != admission_request().submission_digest


def test_the_order_of_layers_is_the_same_submission() -> None:
    two = (AgentAdmissionBudgetLayer.system_default(), budget_layer(limits=BudgetLimits.of(retries=1)))
    assert (
        admission_request(budget_layers=two).submission_digest
        == admission_request(budget_layers=two[::-1]).submission_digest
    )


def test_the_initial_state_is_under_the_graphs_schema() -> None:
    with pytest.raises(InvalidValueError) as caught:
        admission_request(initial_state=graph_state(schema=schema_reference("other")))
    assert (caught.value.type_name, caught.value.reason) == (
        "DurableAgentAdmissionRequest",
        "initial_state_schema_mismatch",
    )


def test_a_request_names_its_ids() -> None:
    request = admission_request(3)
    assert request.ids == run_ids(3)
    assert (request.tenant_id, request.run_id) == (TENANT, run_ids(3).run_id)


def test_fresh_ids_are_five_different_ones() -> None:
    one, two = AgentRunIds.generate(), AgentRunIds.generate()
    texts = {getattr(ids, each.name).text for ids in (one, two) for each in fields(AgentRunIds)}
    assert len(texts) == 10


def test_SUB_01_a_request_can_be_stored_beside_the_callers_own_work() -> None:
    request = admission_request(initial_state=graph_state({"z": 1, "a": [1.5]}))
    for read in (
        decode(encode(request), DurableAgentAdmissionRequest),
        from_json(to_json(request), DurableAgentAdmissionRequest),
        from_wire(to_wire(request), DurableAgentAdmissionRequest),
    ):
        assert read == request
        assert read.submission_digest == request.submission_digest


def test_a_large_request_can_be_stored_too() -> None:
    texts = [instruction(f"line-{index}", "\x01" * MIB) for index in range(2)]
    state = graph_state(["x" * MIB, "y" * (MIB - 100)])
    request = admission_request(descriptor=model_agent("sample-agent", instructions=texts), initial_state=state)
    assert from_json(to_json(request), DurableAgentAdmissionRequest) == request


def test_a_request_that_was_tampered_with_is_refused() -> None:
    tree = to_wire(admission_request())
    assert isinstance(tree, dict)
    for member in tuple(tree):
        without = {name: value for name, value in tree.items() if name != member}
        with pytest.raises(InvalidValueError):
            from_wire(without, DurableAgentAdmissionRequest)
    with pytest.raises(InvalidValueError):
        from_wire(tree | {"ready_nodes": []}, DurableAgentAdmissionRequest)


def test_a_changed_tree_changes_nothing() -> None:
    tree: Any = {"a": [1]}
    request = admission_request(initial_state=graph_state(tree), request=agent_request(input=tree))
    before = request.submission_digest
    tree["a"].append(2)
    assert request.initial_state.data.value == {"a": [1]}
    again = evolve(request)
    assert again.submission_digest == before


def test_a_request_shows_nothing_private() -> None:
    request = admission_request(
        request=agent_request(input="canary"),
        granted=authority(evidence="canary"),
        initial_state=graph_state("canary"),
    )
    assert "canary" not in repr(request)
    assert "somebody" not in repr(request)


def test_a_mutation_either_committed_or_was_there() -> None:
    assert [each.value for each in MutationOutcome] == ["committed", "idempotent"]


def test_a_state_round_trips() -> None:
    assert decode(encode(graph_state([1])), GraphState) == graph_state([1])
    assert isinstance(graph_state().digest, Digest)
