"""Hypothesis strategies of agents, budgets, failures and requests."""

from __future__ import annotations

from hypothesis import strategies as st

from agentruns.domain.agent import AgentDescriptor
from agentruns.domain.authority import AgentAdmissionBudgetLayer
from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.failure import Failure, FailureCategory, FailureDetails, ReconcileFirst, RetryAdvice, SafeAfter
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.testing.model_samples import instruction, model_agent, tool
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
from agentruns.testing.strategies.values import json_documents, scope_sets


def budget_limits() -> st.SearchStrategy[BudgetLimits]:
    """Draw limits that state a few members."""
    counts = st.integers(0, 2**64 - 1)
    return st.builds(
        BudgetLimits.of,
        tool_calls=counts,
        event_bytes=counts,
        costs=st.none() | st.dictionaries(st.sampled_from(["CHF", "EUR", "USD"]), counts),
    )


@st.composite
def agents(draw: st.DrawFn) -> AgentDescriptor:
    """Draw agents with and without a model."""
    stated = draw(st.just(BudgetLimits()) | budget_limits())
    if draw(st.booleans()):
        return agent(required_scopes=draw(scope_sets()), budget_limits=stated)
    texts = draw(st.lists(st.text(max_size=16), min_size=1, max_size=3))
    return model_agent(
        "sample-agent",
        instructions=[instruction(f"line-{index}", text) for index, text in enumerate(texts)],
        tools=[tool(name) for name in draw(st.sets(st.sampled_from(["a", "B", "c-d", "_"])))],
        budget_limits=stated,
    )


@st.composite
def requests(draw: st.DrawFn) -> DurableAgentAdmissionRequest:
    """Draw whole submissions of the sample tenant for the sample graph."""
    named = draw(st.dictionaries(st.sampled_from(["one", "two", "three"]), budget_limits(), max_size=3))
    layers = [budget_layer(name, limits=stated) for name, stated in named.items()]
    granting = BudgetLimits.of(input_bytes=10_000, tool_calls=10)
    stated = draw(st.just(BudgetLimits()) | st.just(granting))
    return admission_request(
        draw(st.integers(1, 99)),
        descriptor=draw(agents()),
        request=agent_request(input=draw(json_documents()), budget_limits=stated),
        budget_layers=(AgentAdmissionBudgetLayer.system_default(), *layers),
        granted=authority(granted_scopes=ScopeSet.of("read", "write", "a/b"), evidence=draw(json_documents())),
        initial_state=graph_state(draw(json_documents())),
    )


@st.composite
def failures(draw: st.DrawFn) -> Failure:
    """Draw failures of every category, with whatever advice it permits."""
    category = draw(st.sampled_from(FailureCategory))
    safe: st.SearchStrategy[RetryAdvice | None] = st.none() | st.integers(0, 10).map(
        lambda delay: SafeAfter(delay=DurationMillis(delay))
    )
    is_ambiguous = category is FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME
    lines = st.text("abcé\u2019 \U0001f600", min_size=1, max_size=16).map(lambda text: f"<{text}>")
    details = draw(st.none() | json_documents().map(lambda tree: FailureDetails.of(schema_reference(), tree)))
    return failure(
        category=category,
        message=draw(lines),
        retry_advice=ReconcileFirst() if is_ambiguous else draw(safe),
        details=details,
    )
