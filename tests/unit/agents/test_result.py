"""Requests and results: held against their agent and their budget."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.budget import ResolvedBudget
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.capability import CapabilityLifecycle
from agentruns.domain.ids import InvocationId, RunId, ThreadId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.outcome import CancelledOutcome, FailedOutcome, SucceededOutcome
from agentruns.domain.request import AgentRequest
from agentruns.domain.result import AgentResult, AgentResultProvenance
from agentruns.domain.retry_advice import SafeAfter
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.wire import decode, encode, from_wire, to_wire
from agentruns.errors import BudgetExceededError, InvalidJsonError, InvalidValueError
from agentruns.testing.model_samples import model_agent
from agentruns.testing.outcome_samples import COMPLETED_AT, USAGE, artifact, outcome, provenance, result
from agentruns.testing.samples import (
    agent,
    agent_request,
    cancellation,
    failure,
    graph_state,
    identity,
    run_ids,
    sample_id,
    schema_reference,
)

BUDGET = ResolvedBudget.resolve([BudgetLimits.system_default()])
OTHER_TENANT = TenantId("tenant-b")


def reason(caught: pytest.ExceptionInfo[InvalidValueError]) -> tuple[str, str]:
    return caught.value.type_name, caught.value.reason


# --- request --------------------------------------------------------------------------------------------------------


def test_a_request_states_three_members() -> None:
    assert to_wire(agent_request(input={"a": 1})) == {
        "input_schema": to_wire(schema_reference("input")),
        "input": {"a": 1},
        "budget_limits": {},
    }
    assert decode(encode(agent_request(input=[1.5])), AgentRequest) == agent_request(input=[1.5])


def test_a_request_is_private() -> None:
    assert "canary" not in repr(agent_request(input="canary"))


def test_the_schema_is_the_agents() -> None:
    agent_request().validate_for(agent(), BUDGET)
    with pytest.raises(InvalidValueError) as caught:
        agent_request(input_schema=schema_reference("other")).validate_for(agent(), BUDGET)
    assert reason(caught) == ("AgentRequest", "schema_mismatch")


def test_the_input_may_reach_the_budget_and_not_exceed_it() -> None:
    budget = ResolvedBudget.resolve([BudgetLimits.system_default(), BudgetLimits.of(input_bytes=4)])
    agent_request(input="ab").validate_for(agent(), budget)
    with pytest.raises(InvalidValueError) as caught:
        agent_request(input="abc").validate_for(agent(), budget)
    assert reason(caught) == ("AgentRequest", "input_too_large")


def test_a_retired_agent_keeps_its_old_requests() -> None:
    agent_request().validate_for(agent(lifecycle=CapabilityLifecycle.RETIRED), BUDGET)


@pytest.mark.parametrize(
    ("tree", "broken"),
    [
        ("x" * (256 * 1024), "too_large"),
        (BoundedJson.parse("[" * 33 + "]" * 33, JsonLimits.MAXIMUM).value, "nesting_too_deep"),
        ([[0] * 1_000] * 17, "too_many_nodes"),
    ],
    ids=["size", "depth", "nodes"],
)
def test_input_has_the_default_limits(tree: Any, broken: str) -> None:
    wide = BoundedJson.of(tree, JsonLimits.MAXIMUM)
    with pytest.raises(InvalidJsonError) as caught:
        AgentRequest(input_schema=schema_reference("input"), input=wide, budget_limits=BudgetLimits())
    assert (caught.value.type_name, caught.value.reason) == ("AgentRequest", broken)
    with pytest.raises(InvalidJsonError):
        agent_request(input=tree)


def test_plain_data_is_not_taken_for_json() -> None:
    with pytest.raises(InvalidValueError) as caught:
        AgentRequest(input_schema=schema_reference("input"), input={}, budget_limits=BudgetLimits())  # type: ignore[arg-type]  # a plain dict
    assert reason(caught) == ("AgentRequest", "wrong_type")


# --- result: construction -------------------------------------------------------------------------------------------


def refused(**members: Any) -> str:
    with pytest.raises(InvalidValueError) as caught:
        result(**members)
    assert caught.value.type_name == "AgentResult"
    return caught.value.reason


def test_provenance_names_the_run_and_its_agent() -> None:
    ids = run_ids()
    assert provenance() == AgentResultProvenance(
        tenant_id=TenantId("tenant-a"),
        run_id=ids.run_id,
        thread_id=ids.thread_id,
        invocation_id=ids.invocation_id,
        agent=agent().metadata.identity,
    )
    with pytest.raises(InvalidValueError) as caught:
        provenance().validate_for(agent("another-agent"))
    assert reason(caught) == ("AgentResultProvenance", "provenance_mismatch")


def test_an_attempt_stands_behind_every_turn() -> None:
    assert (
        refused(usage=BudgetUsage.of(model_turns=2, model_attempts=1, output_bytes=64)) == "fewer_attempts_than_turns"
    )


def test_the_output_is_not_understated() -> None:
    assert result(output="ab", usage=BudgetUsage.of(output_bytes=4)).output.size == 4
    assert refused(output="ab", usage=BudgetUsage.of(output_bytes=3)) == "output_understated"


def test_artifacts_are_not_understated() -> None:
    two = (artifact(1, size=3), artifact(2, size=4))
    assert result(artifacts=two, usage=BudgetUsage.of(output_bytes=64, artifact_bytes=7)).artifacts == two
    assert refused(artifacts=two, usage=BudgetUsage.of(output_bytes=64, artifact_bytes=6)) == "artifacts_understated"


def test_artifacts_are_the_runs_own() -> None:
    usage = BudgetUsage.of(output_bytes=64, artifact_bytes=64)
    elsewhere = artifact(tenant_id=OTHER_TENANT, run_id=run_ids(2).run_id)
    assert refused(artifacts=(elsewhere,), usage=usage) == "artifact_of_another_tenant"
    assert refused(artifacts=(artifact(run_id=run_ids(2).run_id),), usage=usage) == "artifact_of_another_run"


def test_artifacts_are_sixty_four_different_ones_at_most() -> None:
    usage = BudgetUsage.of(output_bytes=64, artifact_bytes=1_000)
    many = tuple(artifact(number) for number in range(65))
    assert result(artifacts=many[:64], usage=usage).artifacts == many[:64]
    assert refused(artifacts=many, usage=usage) == "too_many_artifacts"
    assert refused(artifacts=(artifact(1), artifact(1, size=11)), usage=usage) == "duplicate_artifact"


def test_the_sum_of_artifacts_is_checked() -> None:
    huge = (artifact(1, size=2**64 - 1), artifact(2, size=1))
    with pytest.raises(InvalidValueError) as caught:
        result(artifacts=huge)
    assert reason(caught) == ("ByteCount", "overflow")


def test_rules_of_construction_come_in_their_order() -> None:
    broken: dict[str, Any] = {"artifacts": (artifact(size=1, run_id=run_ids(2).run_id),)}
    usage: dict[str, int] = {"artifact_bytes": 1, "output_bytes": 4, "model_attempts": 1}
    steps: tuple[tuple[str, dict[str, Any], dict[str, int]], ...] = (
        ("artifact_of_another_run", {}, {}),
        ("artifact_of_another_tenant", {"of": provenance(tenant_id=OTHER_TENANT)}, {}),
        ("artifacts_understated", {}, {"artifact_bytes": 0}),
        ("output_understated", {}, {"output_bytes": 3}),
        ("fewer_attempts_than_turns", {}, {"model_turns": 2}),
    )
    for expected, members, counters in steps:
        broken |= members
        usage |= counters
        used: Any = usage
        assert refused(**broken, usage=BudgetUsage.of(**used)) == expected


def test_a_result_is_private() -> None:
    assert "canary" not in repr(result(output="canary"))


# --- result: against what was admitted ------------------------------------------------------------------------------


def judged(
    given: AgentResult,
    *,
    expected: AgentResultProvenance | None = None,
    request: AgentRequest | None = None,
    descriptor: AgentDescriptor | None = None,
    budget: ResolvedBudget = BUDGET,
) -> tuple[str, str] | None:
    try:
        given.validate_for(
            provenance() if expected is None else expected,
            agent_request() if request is None else request,
            agent() if descriptor is None else descriptor,
            budget,
        )
    except (InvalidValueError, BudgetExceededError) as error:
        return getattr(error, "type_name", "budget"), error.reason
    return None


def test_a_result_fits_what_was_admitted() -> None:
    assert judged(result()) is None


def test_the_expected_provenance_is_the_descriptors() -> None:
    assert judged(result(), descriptor=agent("another-agent")) == ("AgentResultProvenance", "provenance_mismatch")


@pytest.mark.parametrize(
    "members",
    [
        {"tenant_id": OTHER_TENANT},
        {"run_id": sample_id(RunId, 99)},
        {"thread_id": sample_id(ThreadId, 99)},
        {"invocation_id": sample_id(InvocationId, 99)},
        {"agent": identity("another-agent")},
    ],
    ids=lambda members: next(iter(members)),
)
def test_every_name_of_the_provenance_counts(members: Any) -> None:
    assert judged(result(of=evolve(provenance(), **members))) == ("AgentResult", "provenance_mismatch")


def test_the_request_is_judged_again() -> None:
    other = agent_request(input_schema=schema_reference("other"))
    assert judged(result(), request=other) == ("AgentRequest", "schema_mismatch")


def test_the_input_is_not_understated() -> None:
    request = agent_request(input="x" * 62)
    assert judged(result(), request=request) is None
    assert judged(result(), request=agent_request(input="x" * 63)) == ("AgentResult", "input_understated")


def test_the_output_schema_is_the_descriptors() -> None:
    assert judged(result(output_schema=schema_reference("input"))) == ("AgentResult", "schema_mismatch")


def test_an_agent_with_a_model_took_a_turn() -> None:
    modelled = model_agent("sample-agent")
    assert judged(result(), descriptor=modelled) == ("AgentResult", "missing_model_turn")
    turned = result(usage=USAGE.accumulate(BudgetUsage.of(model_turns=1, model_attempts=1)))
    assert judged(turned, descriptor=modelled) is None


def test_the_usage_fits_into_the_budget_before_the_deadline() -> None:
    spent = result(usage=USAGE.accumulate(BudgetUsage.of(unpriced_cost_events=1)))
    assert judged(spent) == ("budget", "unpriced_cost")
    due = ResolvedBudget.resolve([BudgetLimits.system_default(deadline=COMPLETED_AT)])
    assert judged(result(), budget=due) == ("budget", "deadline")
    assert judged(result(completed_at=Timestamp(COMPLETED_AT.micros - 1)), budget=due) is None


def test_rules_against_the_admission_come_in_their_order() -> None:
    """Break one more rule at a time, from the last to the first."""
    due = ResolvedBudget.resolve([BudgetLimits.system_default(deadline=COMPLETED_AT)])
    modelled = model_agent("sample-agent")
    large = agent_request(input="x" * 63)
    other = agent_request(input="x" * 63, input_schema=schema_reference("other"))
    foreign = evolve(provenance(), run_id=run_ids(2).run_id)
    wrong_schema = schema_reference("input")
    assert judged(result(), budget=due) == ("budget", "deadline")
    assert judged(result(), budget=due, descriptor=modelled) == ("AgentResult", "missing_model_turn")
    mismatched = result(output_schema=wrong_schema)
    assert judged(mismatched, budget=due, descriptor=modelled) == ("AgentResult", "schema_mismatch")
    assert judged(mismatched, budget=due, descriptor=modelled, request=large) == ("AgentResult", "input_understated")
    assert judged(mismatched, budget=due, descriptor=modelled, request=other) == ("AgentRequest", "schema_mismatch")
    strayed = result(output_schema=wrong_schema, of=foreign)
    assert judged(strayed, budget=due, request=other) == ("AgentResult", "provenance_mismatch")
    assert judged(strayed, descriptor=agent("another-agent")) == ("AgentResultProvenance", "provenance_mismatch")


# --- outcomes -------------------------------------------------------------------------------------------------------


def test_a_failed_run_is_not_a_cancelled_one() -> None:
    with pytest.raises(InvalidValueError) as caught:
        outcome(RunStatus.FAILED, because=cancellation())
    assert reason(caught) == ("FailedOutcome", "failure_kind_mismatch")


def test_a_cancelled_run_has_the_failure_of_a_request() -> None:
    retried = evolve(cancellation(), retry_advice=SafeAfter(delay=DurationMillis(1)))
    for because in (failure(), retried):
        with pytest.raises(InvalidValueError) as caught:
            outcome(RunStatus.CANCELLED, because=because)
        assert reason(caught) == ("CancelledOutcome", "failure_kind_mismatch")


@pytest.mark.parametrize(
    ("status", "cls"),
    [
        (RunStatus.SUCCEEDED, SucceededOutcome),
        (RunStatus.FAILED, FailedOutcome),
        (RunStatus.CANCELLED, CancelledOutcome),
    ],
)
def test_an_outcome_has_the_word_of_its_status(status: RunStatus, cls: type) -> None:
    ended = outcome(status)
    assert type(ended) is cls
    assert ended is not None
    assert (ended.kind, ended.completed_at, ended.usage) == (status.value, COMPLETED_AT, USAGE)
    tree = to_wire(ended)
    assert isinstance(tree, dict)
    assert tree["kind"] == status.value
    assert from_wire(tree, cls) == ended


def test_a_state_is_within_the_maximum_limits_and_private() -> None:
    assert "canary" not in repr(graph_state("canary"))
    deep = BoundedJson.parse("[" * 64 + "]" * 64, JsonLimits.MAXIMUM).value
    assert graph_state(deep).data.depth == 64
