"""Planted races in graphs are found, and shown in a few steps; the graphs without them pass."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from attrs import define, field, frozen

from agentruns.domain.canonical import JsonTree
from agentruns.domain.graph.executable import GraphNodeScheduling
from agentruns.domain.graph.reducers import GraphReducer, GraphReducerReference, MergeReducer, NodeUpdate
from agentruns.domain.graph.returns import Finish, Suspend
from agentruns.domain.payload import JournalPayload
from agentruns.domain.waits import InterruptRegistration, NodeWait
from agentruns.runtime.deployment import Deployment
from agentruns.runtime.graph_builder import GraphBuilder
from agentruns.testing.laws import LawBrokenError, check_graph_laws

ANY: dict[str, JsonTree] = {"type": "object"}
ISOLATED = GraphNodeScheduling.JOURNAL_ISOLATED


@define
class Bank:
    """Book payments; a key that was used books nothing."""

    payments: dict[str, int] = field(factory=dict)

    def pay(self, cents: int, key: str | None = None) -> None:
        self.payments.setdefault(key or str(len(self.payments)), cents)

    def reset(self) -> None:
        self.payments.clear()

    def booked(self) -> list[int]:
        return sorted(self.payments.values())


def shop(bank: Bank, *, is_keyed: bool) -> tuple[Deployment, GraphBuilder]:
    deployment = Deployment(issuer="https://example.com/", subject="shop")
    graph = deployment.add(GraphBuilder("shop", "1.0.0", input=ANY, state=ANY, output=ANY))

    @graph.node(entry=True, then="charge")
    async def check(_context: Any) -> dict[str, Any]:
        return {"is_checked": True}

    @graph.node(then="ship")
    async def charge(context: Any) -> dict[str, Any]:
        bank.pay(context.state["cents"], context.effect_key if is_keyed else None)
        return {"is_paid": True}

    @graph.node(terminal=True)
    def ship(context: Any) -> Finish:
        return Finish({"cents": context.state["cents"]})

    return deployment, graph


def test_a_payment_without_a_key_is_found_and_shown_in_a_few_steps() -> None:
    bank = Bank()
    deployment, graph = shop(bank, is_keyed=False)
    with pytest.raises(LawBrokenError) as caught:
        check_graph_laws(deployment, graph, input={"cents": 5}, reset=bank.reset, observe=bank.booked)
    assert str(caught.value).splitlines() == [
        "the graph shop breaks a law: it does the same outside",
        "  when nothing goes wrong: [5]",
        "  after these steps:       [5, 5]",
        "    1. worker 1 executes check, attempt 1",
        "    2. worker 1 executes charge, attempt 1",
        "    3. worker 1 dies before it has committed what charge has left",
        "    4. worker 2 executes charge, attempt 2",
        "    5. worker 2 executes ship, attempt 1",
        "    6. the run has succeeded",
    ]


def test_a_payment_with_the_key_of_its_effect_keeps_every_law() -> None:
    bank = Bank()
    deployment, graph = shop(bank, is_keyed=True)
    check_graph_laws(deployment, graph, input={"cents": 5}, reset=bank.reset, observe=bank.booked, max_examples=40)
    assert bank.booked() == [5]


def test_the_keys_of_effects_are_the_same_in_every_run() -> None:
    bank = Bank()
    deployment, graph = shop(bank, is_keyed=True)
    observe = lambda: dict(bank.payments)  # noqa: E731
    check_graph_laws(deployment, graph, input={"cents": 5}, reset=bank.reset, observe=observe, max_examples=10)


def siblings(*, reducer: GraphReducer | None = None, seen: list[str]) -> tuple[Deployment, GraphBuilder]:
    """Make two nodes that run side by side and note, past the state, who was first."""
    deployment = Deployment(issuer="https://example.com/", subject="siblings")
    builder = GraphBuilder("siblings", "1.0.0", input=ANY, state=ANY, output=ANY, reducer=reducer)
    graph = deployment.add(builder)

    async def act(context: Any) -> dict[str, Any]:
        seen.append(str(context.node_id))
        return {str(context.node_id): True}

    for name in ("left", "right"):
        graph.node(name=name, entry=True, then="z_join", scheduling=ISOLATED)(act)

    @graph.node(terminal=True)
    async def z_join(context: Any) -> Finish:
        return Finish({"state": context.state})

    return deployment, graph


@frozen
class FirstComer:
    """Reduce by what the nodes noted, and so by the order in which they ended."""

    seen: list[str]
    inner: MergeReducer = field(factory=MergeReducer)

    @property
    def reference(self) -> GraphReducerReference:
        return self.inner.reference

    def reduce(self, state: JsonTree, updates: Sequence[NodeUpdate]) -> JsonTree:
        merged = self.inner.reduce(state, updates)
        assert isinstance(merged, dict)
        return {**merged, "first": self.seen[0]}


def test_a_reducer_that_depends_on_the_order_of_completion_is_found() -> None:
    seen: list[str] = []
    deployment, graph = siblings(reducer=FirstComer(seen), seen=seen)
    with pytest.raises(LawBrokenError) as caught:
        check_graph_laws(deployment, graph, input={}, reset=seen.clear)
    assert caught.value.law == "it ends the same"
    assert "'first': 'left'" in str(caught.value.expected)
    assert "'first': 'right'" in str(caught.value.found)
    assert caught.value.steps == (
        "worker 1 executes right, attempt 1",
        "worker 1 executes left, attempt 1",
        "worker 1 executes z_join, attempt 1",
        "the run has succeeded",
    )


@frozen
class Counting:
    """Reduce to how often it was called."""

    calls: list[int] = field(factory=list)
    inner: MergeReducer = field(factory=MergeReducer)

    @property
    def reference(self) -> GraphReducerReference:
        return self.inner.reference

    def reduce(self, _state: JsonTree, _updates: Sequence[NodeUpdate]) -> JsonTree:
        self.calls.append(1)
        return {"calls": len(self.calls)}


def test_a_reducer_that_gives_something_else_each_time_is_found_without_any_fault() -> None:
    deployment, graph = siblings(reducer=Counting(), seen=[])
    with pytest.raises(LawBrokenError) as caught:
        check_graph_laws(deployment, graph, input={})
    assert caught.value.law == "its journal says the same when it is read once more"
    assert caught.value.found == "the journal contradicts itself: barrier state"


def test_siblings_that_keep_to_themselves_pass() -> None:
    deployment, graph = siblings(seen=[])
    check_graph_laws(deployment, graph, input={}, max_examples=30)


def test_a_lost_update_between_siblings_is_found() -> None:
    """Two siblings read, wait and write: only side by side do they lose something."""
    stock = {"left": 2}
    deployment = Deployment(issuer="https://example.com/", subject="stock")
    graph = deployment.add(GraphBuilder("stock", "1.0.0", input=ANY, state=ANY, output=ANY))

    async def take(_context: Any) -> None:
        left = stock["left"]
        await asyncio.sleep(0)
        stock["left"] = left - 1

    for name in ("a", "b"):
        graph.node(name=name, entry=True, then="z_join", scheduling=ISOLATED)(take)
    graph.node(name="z_join", terminal=True)(lambda _context: Finish({}))
    with pytest.raises(LawBrokenError) as caught:
        check_graph_laws(
            deployment, graph, input={}, reset=lambda: stock.update(left=2), observe=lambda: max(stock["left"], 0)
        )
    assert (caught.value.expected, caught.value.found) == (0, 1)
    assert "worker 1 executes b, attempt 1 beside the one before" in caught.value.steps


def waiting(*, expires_in: timedelta | None) -> tuple[Deployment, GraphBuilder]:
    deployment = Deployment(issuer="https://example.com/", subject="waiting")
    schema = deployment.add_schema(ANY, name="question")
    graph = deployment.add(GraphBuilder("waiting", "1.0.0", input=ANY, state=ANY, output=ANY))

    @graph.node(entry=True, wait_to="end")
    async def ask(_context: Any) -> Suspend:
        asked = JournalPayload.of(schema, "question", {})
        return Suspend(
            NodeWait.interrupt("approval", request=asked, expires_in=expires_in),
            NodeWait.timer(due_in=timedelta(days=1)),
        )

    @graph.node(terminal=True)
    async def end(context: Any) -> Finish:
        interrupt, timer = await context.resolutions()
        return Finish({"answer": interrupt.resolution.payload.data.value, "timer": timer.how.value})

    return deployment, graph


def test_waits_are_answered_and_time_passes_at_once() -> None:
    deployment, graph = waiting(expires_in=None)

    def answer(asked: InterruptRegistration) -> JournalPayload:
        return JournalPayload.of(asked.request.schema, "answer", {"is_approved": True})

    check_graph_laws(deployment, graph, input={}, answer=answer, max_examples=20)


def test_an_interrupt_that_nobody_answers_expires() -> None:
    deployment, graph = waiting(expires_in=timedelta(days=2))
    check_graph_laws(deployment, graph, input={}, max_examples=20)


def test_a_graph_that_would_wait_for_ever_says_what_is_missing() -> None:
    deployment, graph = waiting(expires_in=None)
    with pytest.raises(ValueError, match="say what it is answered"):
        check_graph_laws(deployment, graph, input={}, max_examples=1)


def test_ends_that_differ_by_chance_may_be_permitted() -> None:
    deployment = Deployment(issuer="https://example.com/", subject="chance")
    graph = deployment.add(GraphBuilder("chance", "1.0.0", input=ANY, state=ANY, output=ANY))
    turns: list[int] = []

    @graph.node(entry=True, terminal=True)
    async def guess(_context: Any) -> Finish:
        turns.append(1)
        return Finish({"turn": len(turns)})

    check_graph_laws(deployment, graph, input={}, same_end=False, max_examples=10)
    with pytest.raises(LawBrokenError):
        check_graph_laws(deployment, graph, input={}, max_examples=10)
