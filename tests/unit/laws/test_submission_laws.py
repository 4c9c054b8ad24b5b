"""A request that cannot be repeated is found; one that can makes one run."""

from __future__ import annotations

from itertools import count

import pytest

from agentruns.domain.budget_limits import BudgetLimits
from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.returns import Finish
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.domain.timestamps import Timestamp
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.deployment_open import OpenDeployment
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.testing.laws import LawBrokenError, check_submission_laws

TEXT: dict[str, JsonTree] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ANY: dict[str, JsonTree] = {"type": "object"}


@pytest.fixture
def deployment() -> Deployment:
    return Deployment(issuer="https://example.com/", subject="laws")


@pytest.fixture
def graph(deployment: Deployment) -> GraphBuilder:
    graph = deployment.add(GraphBuilder("echo", "1.0.0", input=TEXT, state=ANY, output=ANY))
    graph.node(name="a", entry=True, terminal=True)(lambda _context: Finish({}))
    return graph


def test_equal_requests_make_one_run(deployment: Deployment, graph: GraphBuilder) -> None:
    check_submission_laws(deployment, lambda app: app.request(graph, input={"text": "?"}), max_examples=15)


def test_a_deadline_that_is_made_afresh_is_found(deployment: Deployment, graph: GraphBuilder) -> None:
    instants = count(Timestamp.parse("2030-01-01T00:00:00.000000Z").micros)

    def request(app: OpenDeployment) -> DurableAgentAdmissionRequest:
        limits = BudgetLimits.of(deadline=Timestamp(next(instants)))
        return app.request(graph, input={"text": "?"}, budget_limits=limits)

    with pytest.raises(LawBrokenError) as caught:
        check_submission_laws(deployment, request)
    assert caught.value.law == "its content is the same each time"
    assert caught.value.found == "different in request, budget"


def test_a_request_that_is_seldom_another_one_is_found_with_its_steps(
    deployment: Deployment, graph: GraphBuilder
) -> None:
    calls = count()

    def request(app: OpenDeployment) -> DurableAgentAdmissionRequest:
        return app.request(graph, input={"text": "?" if next(calls) % 5 else "!"})

    with pytest.raises(LawBrokenError) as caught:
        check_submission_laws(deployment, request)
    assert caught.value.law in ("it makes one run", "its content is the same each time")


def test_what_the_deployment_does_not_admit_is_found(deployment: Deployment, graph: GraphBuilder) -> None:
    with pytest.raises(LawBrokenError) as caught:
        check_submission_laws(deployment, lambda app: app.request(graph, input={}))
    assert caught.value.law == "this deployment admits it"
    assert "input" in str(caught.value.found)
