"""Records of agents: spliced bytes are encoded bytes, and everything comes back as it went."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.admission import AgentAdmissionIntent
from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.authority import AgentAdmissionBudgetLayer
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import canonical_bytes, parse_canonical
from agentruns.domain.digests import DigestPurpose, digest_members
from agentruns.domain.failure import Failure, FailureCategory, FailureDetails, ReconcileFirst, RetryAdvice, SafeAfter
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.wire import decode, encode, from_wire, to_wire
from agentruns.errors import InvalidValueError
from agentruns.testing.model_samples import instruction, model_agent, tool
from agentruns.testing.outcome_samples import snapshot
from agentruns.testing.samples import (
    admission_request,
    agent,
    agent_request,
    authority,
    budget_layer,
    failure,
    graph_state,
    schema_reference,
)

#: Trees that take either path of the encoder: floats, and names beyond ASCII.
json_trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e15, 1e15) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
counts = st.integers(0, 2**64 - 1)
limits = st.builds(
    BudgetLimits.of,
    tool_calls=counts,
    event_bytes=counts,
    costs=st.none() | st.dictionaries(st.sampled_from(["CHF", "EUR", "USD"]), counts),
)
public_lines = st.text("abcé\u2019 \U0001f600", min_size=1, max_size=16).map(lambda text: f"<{text}>")
scopes = st.sets(st.sampled_from(["read", "write", "a/b"])).map(lambda texts: ScopeSet.of(*texts))


@st.composite
def descriptors(draw: st.DrawFn) -> AgentDescriptor:
    stated = draw(st.just(BudgetLimits()) | limits)
    if draw(st.booleans()):
        return agent(required_scopes=draw(scopes), budget_limits=stated)
    texts = draw(st.lists(st.text(max_size=16), min_size=1, max_size=3))
    return model_agent(
        "sample-agent",
        instructions=[instruction(f"line-{index}", text) for index, text in enumerate(texts)],
        tools=[tool(name) for name in draw(st.sets(st.sampled_from(["a", "B", "c-d", "_"])))],
        budget_limits=stated,
    )


@st.composite
def requests(draw: st.DrawFn) -> DurableAgentAdmissionRequest:
    named = draw(st.dictionaries(st.sampled_from(["one", "two", "three"]), limits, max_size=3))
    layers = [budget_layer(name, limits=stated) for name, stated in named.items()]
    granting = BudgetLimits.of(input_bytes=10_000, tool_calls=10)
    return admission_request(
        draw(st.integers(1, 99)),
        descriptor=draw(descriptors()),
        request=agent_request(input=draw(json_trees), budget_limits=draw(st.just(BudgetLimits()) | st.just(granting))),
        budget_layers=(AgentAdmissionBudgetLayer.system_default(), *layers),
        granted=authority(granted_scopes=ScopeSet.of("read", "write", "a/b"), evidence=draw(json_trees)),
        initial_state=graph_state(draw(json_trees)),
    )


@st.composite
def failures(draw: st.DrawFn) -> Failure:
    category = draw(st.sampled_from(FailureCategory))
    safe: st.SearchStrategy[RetryAdvice | None] = st.none() | st.integers(0, 10).map(
        lambda delay: SafeAfter(delay=DurationMillis(delay))
    )
    is_ambiguous = category is FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME
    details = draw(st.none() | json_trees.map(lambda tree: FailureDetails.of(schema_reference(), tree)))
    return failure(
        category=category,
        message=draw(public_lines),
        retry_advice=ReconcileFirst() if is_ambiguous else draw(safe),
        details=details,
    )


def assert_is_one_record(record: Any) -> None:
    """Hold the ways to and from bytes against each other."""
    data = encode(record)
    assert data == canonical_bytes(to_wire(record))
    read = decode(data, type(record))
    assert read == record
    assert encode(read) == data
    assert from_wire(parse_canonical(data, JsonLimits.record(len(data))), type(record)) == record


@given(requests())
def test_SUB_01_a_submission_is_one_record_with_one_digest(request_: DurableAgentAdmissionRequest) -> None:
    assert_is_one_record(request_)
    assert_is_one_record(request_.intent)
    intent = request_.intent
    members = {
        "tenant_id": intent.provenance.tenant_id.text,
        "descriptor": to_wire(intent.descriptor),
        "request": to_wire(intent.request),
        "budget_layers": [to_wire(layer) for layer in intent.budget_layers],
        "budget": to_wire(intent.budget),
        "graph": to_wire(intent.graph),
        "authority": to_wire(intent.authority),
        "initial_state": to_wire(request_.initial_state),
    }
    assert request_.submission_digest == digest_members(DigestPurpose.SUBMISSION, members)


@given(requests(), st.data())
def test_SUB_01_the_order_of_layers_does_not_change_the_admission(
    request_: DurableAgentAdmissionRequest, data: st.DataObject
) -> None:
    intent = request_.intent
    again = AgentAdmissionIntent.of(
        provenance=intent.provenance,
        descriptor=intent.descriptor,
        request=intent.request,
        budget_layers=data.draw(st.permutations(intent.budget_layers)),
        graph=intent.graph,
        authority=intent.authority,
    )
    assert (again, again.digest) == (intent, intent.digest)


@given(requests(), st.data())
def test_SUB_01_a_stated_budget_that_was_not_resolved_is_refused(
    request_: DurableAgentAdmissionRequest, data: st.DataObject
) -> None:
    tree: Any = to_wire(request_.intent)
    name = data.draw(st.sampled_from(sorted(set(tree["budget"]) - {"deadline", "costs"})))
    tree["budget"][name] = str(data.draw(counts.filter(lambda value: str(value) != tree["budget"][name])))
    with pytest.raises(InvalidValueError):
        from_wire(tree, AgentAdmissionIntent)


@given(failures())
def test_a_failure_is_one_record(given_failure: Failure) -> None:
    assert_is_one_record(given_failure)


@given(limits, st.sampled_from([status for status in RunStatus if status is not RunStatus.PENDING]))
def test_limits_and_snapshots_are_one_record(stated: BudgetLimits, status: RunStatus) -> None:
    assert_is_one_record(stated)
    assert_is_one_record(snapshot(status))
    assert_is_one_record(BudgetUsage.of(retries=3, known_costs={"EUR": 1}))


@given(requests())
def test_kept_bytes_are_fresh_bytes(request_: DurableAgentAdmissionRequest) -> None:
    intent = request_.intent
    for kept in (intent, intent.descriptor, intent.request, intent.budget, intent.authority, request_.initial_state):
        assert kept.canonical == evolve(kept).canonical
        assert kept.digest == evolve(kept).digest
