"""What is admitted: each rule alone, their order, the body and its digest."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.admission import AgentAdmission, AgentAdmissionIntent
from agentruns.domain.authority import AgentAdmissionAuthority, AgentAdmissionBudgetLayer
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget import ResolvedBudget
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.capability import CapabilityLifecycle
from agentruns.domain.digests import DigestPurpose, digest_body
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import ExecutionCount
from agentruns.domain.scalars import JournalEventKind
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode, encode, from_wire, to_wire
from agentruns.errors import AgentAdmissionRejectedError, BudgetExceededError, InvalidJsonError, InvalidValueError
from agentruns.testing.model_samples import instruction, model_agent, tool
from agentruns.testing.outcome_samples import provenance
from agentruns.testing.samples import (
    admission_intent,
    admission_request,
    agent,
    agent_request,
    authority,
    budget_layer,
    graph_reference,
    identity,
    run_ids,
)

NOON = Timestamp.parse("2026-01-02T12:00:00.000000Z")
DEFAULT = AgentAdmissionBudgetLayer.system_default()


def intent(**members: Any) -> AgentAdmissionIntent:
    given: dict[str, Any] = {
        "provenance": provenance(),
        "descriptor": agent(),
        "request": agent_request(),
        "budget_layers": [DEFAULT],
        "graph": graph_reference(),
        "authority": authority(),
    }
    return AgentAdmissionIntent.of(**given | members)


def refused(**members: Any) -> tuple[str, str]:
    with pytest.raises(InvalidValueError) as caught:
        intent(**members)
    return caught.value.type_name, caught.value.reason


def layers(count: int) -> list[AgentAdmissionBudgetLayer]:
    return [
        DEFAULT,
        *(budget_layer(f"policy-{index:02d}", limits=BudgetLimits.of(retries=9)) for index in range(count - 1)),
    ]


# --- layers and authority -------------------------------------------------------------------------------------------


def test_a_layer_states_something() -> None:
    with pytest.raises(InvalidValueError) as caught:
        budget_layer(limits=BudgetLimits())
    assert (caught.value.type_name, caught.value.reason) == ("AgentAdmissionBudgetLayer", "empty_limits")
    assert budget_layer(limits=BudgetLimits(costs=())).limits.stated == ("costs",)


def test_the_default_layer_is_the_same_on_every_call() -> None:
    assert to_wire(DEFAULT.source) == {
        "owner": {"issuer": "https://agentruns.invalid/", "subject": "agentruns"},
        "capability": {"name": "budget.system-default", "version": "1.0.0"},
    }
    assert DEFAULT.decision_digest == BoundedJson.of(to_wire(BudgetLimits.system_default())).digest
    assert AgentAdmissionBudgetLayer.system_default() == DEFAULT
    assert AgentAdmissionBudgetLayer.system_default(
        deadline=NOON, costs={"EUR": 1}
    ).limits == BudgetLimits.system_default(deadline=NOON, costs={"EUR": 1})


def test_the_evidence_of_an_authority_has_one_kind() -> None:
    evidence = evolve(authority().evidence, kind=JournalEventKind("something-else"))
    with pytest.raises(InvalidValueError) as caught:
        evolve(authority(), evidence=evidence)
    assert (caught.value.type_name, caught.value.reason) == ("AgentAdmissionAuthority", "wrong_evidence_kind")
    assert decode(encode(authority()), AgentAdmissionAuthority) == authority()


def test_evidence_has_the_default_limits() -> None:
    wide = BoundedJson.of("x" * (256 * 1024), JsonLimits.MAXIMUM)
    with pytest.raises(InvalidJsonError) as caught:
        evolve(authority(), evidence=evolve(authority().evidence, data=wide))
    assert (caught.value.type_name, caught.value.reason) == ("AgentAdmissionAuthority", "too_large")


def test_evidence_is_private() -> None:
    assert "canary" not in repr(authority(evidence="canary"))


# --- the intent -----------------------------------------------------------------------------------------------------


def test_the_budget_is_what_layers_agent_and_request_resolve_to() -> None:
    given = intent(
        descriptor=agent(budget_limits=BudgetLimits.of(tool_calls=5)),
        request=agent_request(budget_limits=BudgetLimits.of(retries=3)),
        budget_layers=[DEFAULT, budget_layer(limits=BudgetLimits.of(fan_out=7))],
    )
    expected = BudgetLimits.system_default().merge(BudgetLimits.of(tool_calls=5, retries=3, fan_out=7))
    assert given.budget == ResolvedBudget.resolve([expected])


def test_a_request_can_narrow_and_never_widen() -> None:
    wide = intent(request=agent_request(budget_limits=BudgetLimits.of(retries=2**64 - 1)))
    assert wide.budget.retries == ExecutionCount(1_024)


def test_SUB_02_a_retired_agent_is_refused() -> None:
    assert refused(descriptor=agent(lifecycle=CapabilityLifecycle.RETIRED)) == ("AgentAdmissionIntent", "retired_agent")


def test_SUB_02_the_provenance_names_the_agent() -> None:
    assert refused(descriptor=agent("another-agent")) == ("AgentResultProvenance", "provenance_mismatch")


def test_SUB_02_every_required_scope_is_granted() -> None:
    needs = agent(required_scopes=ScopeSet.of("read", "write"))
    assert refused(descriptor=needs, authority=authority(granted_scopes=ScopeSet.of("read"))) == (
        "AgentAdmissionIntent",
        "insufficient_scopes",
    )
    granted = authority(granted_scopes=ScopeSet.of("write", "read", "more"))
    assert intent(descriptor=needs, authority=granted).descriptor == needs


def test_SUB_02_layers_are_sixteen_with_those_of_agent_and_request() -> None:
    narrowed: dict[str, Any] = {
        "descriptor": agent(budget_limits=BudgetLimits.of(retries=9)),
        "request": agent_request(budget_limits=BudgetLimits.of(retries=9)),
    }
    assert len(intent(budget_layers=layers(16)).budget_layers) == 16
    assert refused(budget_layers=layers(17)) == ("AgentAdmissionIntent", "too_many_budget_layers")
    assert len(intent(budget_layers=layers(14), **narrowed).budget_layers) == 14
    assert refused(budget_layers=layers(15), **narrowed) == ("AgentAdmissionIntent", "too_many_budget_layers")


def test_SUB_02_a_source_states_one_layer() -> None:
    assert refused(budget_layers=[DEFAULT, DEFAULT]) == ("AgentAdmissionIntent", "duplicate_budget_layer")


def test_SUB_02_every_dimension_is_stated() -> None:
    assert refused(budget_layers=[]) == ("ResolvedBudget", "no_layers")
    assert refused(budget_layers=[budget_layer(limits=BudgetLimits.of(retries=1))]) == (
        "ResolvedBudget",
        "missing_dimensions",
    )


def test_SUB_02_a_stated_budget_is_the_resolved_one() -> None:
    stated = admission_intent()
    with pytest.raises(InvalidValueError) as caught:
        evolve(stated, budget=evolve(stated.budget, retries=ExecutionCount(1)))
    assert (caught.value.type_name, caught.value.reason) == ("AgentAdmissionIntent", "resolved_budget_mismatch")


def test_SUB_02_the_request_fits_agent_and_budget() -> None:
    assert refused(request=agent_request(input="long", budget_limits=BudgetLimits.of(input_bytes=1))) == (
        "AgentRequest",
        "input_too_large",
    )


def test_SUB_02_a_snapshot_is_at_most_sixteen_mebibytes() -> None:
    """An instruction of control characters is six times as long in JSON as in UTF-8."""
    mebibyte = 1024 * 1024
    texts = [instruction(f"line-{index}", "\x01" * mebibyte) for index in range(3)]
    too_large = model_agent("sample-agent", instructions=texts)
    assert refused(descriptor=too_large) == ("AgentAdmissionIntent", "snapshot_too_large")
    assert intent(descriptor=model_agent("sample-agent", instructions=texts[:2])).descriptor.model is not None


def test_SUB_02_rules_come_in_their_order() -> None:
    """Break one more rule at a time, from the last to the first."""
    broken: dict[str, Any] = {}
    steps: tuple[tuple[str, dict[str, Any]], ...] = (
        ("input_too_large", {"request": agent_request(input="long", budget_limits=BudgetLimits.of(input_bytes=1))}),
        ("missing_dimensions", {"budget_layers": [budget_layer(limits=BudgetLimits.of(retries=1))]}),
        ("duplicate_budget_layer", {"budget_layers": [budget_layer(limits=BudgetLimits.of(retries=1))] * 2}),
        ("too_many_budget_layers", {"budget_layers": [budget_layer(limits=BudgetLimits.of(retries=1))] * 17}),
        ("insufficient_scopes", {"descriptor": agent(required_scopes=ScopeSet.of("read"))}),
        ("provenance_mismatch", {"descriptor": agent("another-agent", required_scopes=ScopeSet.of("read"))}),
        ("retired_agent", {"descriptor": agent("another-agent", lifecycle=CapabilityLifecycle.RETIRED)}),
    )
    for reason, members in steps:
        broken |= members
        assert refused(**broken)[1] == reason


def test_SUB_01_the_order_of_layers_does_not_matter() -> None:
    several = layers(5)
    assert intent(budget_layers=several[::-1]).digest == intent(budget_layers=several).digest
    stated = intent(budget_layers=several)
    assert [layer.source for layer in stated.budget_layers] == sorted(layer.source for layer in several)
    with pytest.raises(InvalidValueError) as caught:
        evolve(stated, budget_layers=stated.budget_layers[::-1])
    assert caught.value.reason == "unsorted"


def test_SUB_01_the_body_is_the_intents_canonical_bytes() -> None:
    for stated in (admission_intent(), intent(descriptor=model_agent("sample-agent", tools=[tool()]))):
        assert stated.canonical == canonical_bytes(to_wire(stated)) == encode(stated)
        assert stated.digest == digest_body(DigestPurpose.ADMISSION, stated.canonical)
        read = decode(stated.canonical, AgentAdmissionIntent)
        assert (read, read.digest, read.canonical) == (stated, stated.digest, stated.canonical)


def test_SUB_01_the_body_has_exactly_these_members() -> None:
    tree = to_wire(admission_intent())
    assert isinstance(tree, dict)
    assert set(tree) == {"provenance", "descriptor", "request", "budget_layers", "budget", "graph", "authority"}


@pytest.mark.parametrize(
    ("member", "other"),
    [
        ("provenance", provenance(2)),
        ("request", agent_request(input="other")),
        ("graph", graph_reference("another-graph")),
        ("authority", authority(evidence="other")),
        ("descriptor", agent(required_scopes=ScopeSet())),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_SUB_01_every_member_is_covered_by_the_digest(member: str, other: object) -> None:
    changed = intent(**{member: other})
    assert (changed.digest == admission_intent().digest) is (member == "descriptor")


def test_SUB_01_a_body_with_another_budget_is_refused() -> None:
    tree = to_wire(admission_intent())
    assert isinstance(tree, dict)
    assert isinstance(tree["budget"], dict)
    tree["budget"]["retries"] = "1"
    with pytest.raises(InvalidValueError):
        from_wire(tree, AgentAdmissionIntent)


# --- the commit -----------------------------------------------------------------------------------------------------


def test_SUB_02_the_deadline_itself_is_too_late() -> None:
    due = intent(budget_layers=[AgentAdmissionBudgetLayer.system_default(deadline=NOON)])
    just_before = Timestamp(NOON.micros - 1)
    assert AgentAdmission.commit(due, just_before) == AgentAdmission(intent=due, admitted_at=just_before)
    with pytest.raises(AgentAdmissionRejectedError) as caught:
        AgentAdmission.commit(due, NOON)
    assert (caught.value.reason, caught.value.tenant_id, caught.value.run_id) == (
        "deadline",
        due.provenance.tenant_id,
        due.provenance.run_id,
    )


def test_reading_an_admission_evaluates_the_budget_again() -> None:
    due = intent(budget_layers=[AgentAdmissionBudgetLayer.system_default(deadline=NOON)])
    with pytest.raises(BudgetExceededError, match="deadline"):
        AgentAdmission(intent=due, admitted_at=NOON)


def test_the_instant_of_the_commit_is_in_no_body() -> None:
    early, late = (AgentAdmission.commit(admission_intent(), Timestamp(micros)) for micros in (0, 1))
    assert early.digest == late.digest == admission_intent().digest


def test_the_sample_submission_is_the_intents() -> None:
    assert admission_request().intent == intent()
    assert admission_request().intent.provenance.run_id == run_ids().run_id
    assert identity() != identity("other")
