"""Laws of the fold over random legal histories."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.ledger.classify import Deferred, Dispatchable, DispatchGround, InFlight, classify
from agentruns.domain.ledger.data import EventData, parse_data
from agentruns.domain.ledger.event import Event
from agentruns.domain.ledger.kinds import EventKind, find_kind
from agentruns.domain.ledger.outcomes import StoredSuccess
from agentruns.domain.ledger.rows import RunProjection
from agentruns.domain.numbers import FencingEpoch
from agentruns.domain.schema import JsonSchemaRegistry, JsonSchemaRegistryBuilder
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.wire import to_wire
from agentruns.errors import InvalidValueError, SchemaRejectedError
from agentruns.runtime.standard_schemas import register_standard_schemas
from agentruns.testing.histories import History, as_stored, bodies_of, refold
from agentruns.testing.strategies.histories import histories


@cache
def schemas() -> JsonSchemaRegistry:
    builder = JsonSchemaRegistryBuilder()
    register_standard_schemas(builder)
    return builder.build()


def known(event: Event) -> tuple[EventKind, EventData]:
    kind = find_kind(event.kind, event.schema_digest)
    assert kind is not None
    return kind, parse_data(kind, event.data)


@given(histories())
def test_LED_04_what_was_built_by_extend_is_accepted_by_apply(history: History) -> None:
    states = list(refold(history))
    assert states[-1] == history.state
    by_head = {state.head: state for state in states}
    for commit in history.commits:
        assert by_head[commit.state.head] == commit.state


@given(histories())
def test_LED_16_SUB_25_sequences_instants_epochs_and_revisions(history: History) -> None:
    events = history.stored_events
    assert [int(event.sequence) for event in events] == list(range(1, len(events) + 1))
    assert all(before.recorded_at <= after.recorded_at for before, after in pairwise(events))
    epochs = [event.epoch for event in events if event.epoch]
    assert epochs == sorted(epochs)
    assert history.state.epoch == max(epochs, default=0)
    transitions = [event for event in events if hasattr(known(event)[1], "revision")]
    assert int(history.state.revision) == 1 + len(transitions)
    assert int(history.state.lifecycle_sequence or 0) == int((transitions or events[:1])[-1].sequence)


@given(histories())
def test_LED_17_starts_are_numbered_and_one_success_at_most(history: History) -> None:
    attempts: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for event in history.stored_events:
        data = json.loads(event.data)
        if not str(event.kind).startswith("graph-node-attempt"):
            continue
        made = attempts[data["superstep"], data["node_id"]]
        if "attempt_id" in data:
            assert int(data["attempt"]) == len(made) + 1 <= 64
            if made:
                assert made[-1]["end"] == "failed" or (made[-1]["end"] is None and made[-1]["epoch"] < event.epoch)
                assert made[-1]["gate"] is None or made[-1]["gate"] <= str(event.recorded_at)
            made.append({"end": None, "epoch": event.epoch, "gate": None})
            continue
        assert made[-1]["end"] is None
        assert made[-1]["epoch"] == event.epoch
        made[-1].update(end=str(event.kind).rsplit("-", 1)[1], gate=data.get("retry_not_before"))
    for made in attempts.values():
        assert Counter(attempt["end"] for attempt in made)["succeeded"] <= 1


@given(histories(), st.integers(0, 3_000_000), st.integers(0, 3_000_000))
def test_LED_18_one_class_for_each_ready_node_and_time_only_lifts_deferrals(
    history: History, sooner: int, later: int
) -> None:
    state = history.state
    if state.checkpoint is None or any(call.status.value == "unknown" for call in state.invocations.values()):
        return
    epoch = FencingEpoch(max(int(history.epoch), 1))
    first = classify(state, epoch=epoch, now=history.now.plus_micros(sooner))
    second = classify(state, epoch=epoch, now=history.now.plus_micros(sooner + later))
    assert [each.node_id for each in first.nodes] == list(state.checkpoint.ready_nodes)
    assert first.is_barrier_ready == (len(state.results) == len(state.checkpoint.ready_nodes))
    for before, after in zip(first.nodes, second.nodes, strict=True):
        if before != after:
            assert isinstance(before, Deferred)
            assert isinstance(after, Dispatchable)
            assert after.ground is DispatchGround.SAFE_RETRY
            assert first.observed_at < before.not_before <= second.observed_at


@given(histories())
def test_LED_18_a_higher_epoch_takes_over_what_is_in_flight(history: History) -> None:
    state = history.state
    if state.checkpoint is None or state.invocations:
        return
    before = classify(state, epoch=history.epoch, now=history.now)
    after = classify(state, epoch=history.epoch.next(), now=history.now)
    for old, new in zip(before.nodes, after.nodes, strict=True):
        if isinstance(old, InFlight):
            assert isinstance(new, Dispatchable)
            assert new.ground is DispatchGround.SUPERSEDED_ATTEMPT
        else:
            assert new == old


@given(histories())
def test_LED_20_what_is_spliced_is_what_the_encoder_writes(history: History) -> None:
    for event in history.events:
        assert event.envelope == canonical_bytes(json.loads(event.envelope))
        assert event.data == canonical_bytes(json.loads(event.data))
    if history.state.outcome is not None:
        body = history.state.outcome.body
        assert body.canonical == canonical_bytes(to_wire(body))
    for result in history.state.results.values():
        assert result.canonical == canonical_bytes(to_wire(result))


@given(histories(), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_LED_21_events_satisfy_their_documents_and_mutants_do_not(history: History, random: Random) -> None:
    for event in history.stored_events:
        kind, data = known(event)
        schemas().validate(kind.document, BoundedJson.of(json.loads(event.data)))
        mutant = mutated(json.loads(event.data), random)
        assert not is_accepted(kind, mutant, data)


def mutated(tree: dict[str, Any], random: Random) -> dict[str, Any]:
    """Change one member of event data so that it is no longer in its form."""
    name = random.choice(sorted(tree))
    choice = random.randrange(4)
    if choice == 0 and name not in {"retry_not_before", "reserved"}:
        return {each: value for each, value in tree.items() if each != name}
    if choice == 1:
        return {**tree, "foreign": "1"}
    if choice == 2 and isinstance(tree[name], str):
        return {**tree, name: tree[name] + "\n"}
    return {**tree, name: random.choice([1, None, True, 1.5])}


def is_accepted(kind: EventKind, tree: dict[str, Any], _data: EventData) -> bool:
    try:
        schemas().validate(kind.document, BoundedJson.of(tree))
        parse_data(kind, canonical_bytes(tree))
    except (SchemaRejectedError, InvalidValueError):
        return False
    return True


@given(histories())
def test_LED_22_usage_is_an_independent_sum(history: History) -> None:
    run = Counter(graph_depth=1, input_bytes=len(b"null")) + node_counts(history)
    usage = BudgetUsage.zero()
    for commit in history.commits:
        for result in commit.results:
            usage = usage.accumulate(charged(json.loads(result.body)["usage"]))
        if commit.checkpoint is not None and commit.state.outcome is None:
            run["checkpoint_bytes"] += len(commit.checkpoint.state)
            run["fan_out"] = max(run["fan_out"], len(json.loads(commit.checkpoint.ready)))
        for event in commit.events:
            usage = usage.accumulate(charged(json.loads(event.data).get("charged", {})))
            if event.kind.text not in {"graph-barrier-succeeded", "graph-run-failed", "agent-cancellation-confirmed"}:
                run["event_bytes"] += len(event.data)
    outcome = history.state.outcome
    if outcome is not None and isinstance(outcome.body, StoredSuccess):
        run["output_bytes"] += outcome.body.output.size
    assert history.state.usage == usage.accumulate(BudgetUsage.of(**dict[str, Any](run)))


def node_counts(history: History) -> Counter[str]:
    """Count what the starts of nodes say, in the order of the journal."""
    run: Counter[str] = Counter()
    started: set[tuple[str, str]] = set()
    under_way: set[str] = set()
    for event in history.events:
        data = json.loads(event.data)
        if event.kind.text == "graph-node-attempt-started":
            activation = data["superstep"], data["node_id"]
            run["retries"] += activation in started
            started.add(activation)
            under_way.add(data["node_id"])
            run["concurrent_branches"] = max(run["concurrent_branches"], len(under_way))
        elif event.kind.text.startswith("graph-node-attempt"):
            under_way.discard(data["node_id"])
        elif event.kind.text.startswith("graph-barrier"):
            under_way.clear()
    run["graph_steps"] = len({superstep for superstep, _ in started})
    return run


def charged(tree: dict[str, Any]) -> BudgetUsage:
    members = dict(tree)
    costs = {each["currency"]: int(each["micro_units"]) for each in members.pop("known_costs", [])}
    return BudgetUsage.of(known_costs=costs, **{name: int(value) for name, value in members.items()})


@given(histories())
def test_reserves_add_up(history: History) -> None:
    reserved: Counter[str] = Counter()
    for event in history.events:
        reserved.update({name: int(each) for name, each in json.loads(event.data).get("reserved", {}).items()})
    state = history.state.reserved
    assert (int(state.input_tokens), int(state.output_tokens)) == (reserved["input_tokens"], reserved["output_tokens"])


@given(histories())
def test_the_projection_is_the_state_after_the_commit(history: History) -> None:
    for commit in history.commits:
        row, state = commit.projection, commit.state
        assert row == RunProjection.of(state)
        assert (row.head.sequence, row.head.digest) == (commit.events[-1].sequence, commit.events[-1].digest)
        assert commit.is_transition == (state.lifecycle_sequence == state.head.sequence if state.head else False)
        if commit.checkpoint is not None:
            assert (commit.checkpoint.digest, commit.checkpoint.superstep) == (row.checkpoint_digest, row.superstep)


@given(histories(steps=20))
def test_LIF_07_LIF_08_waits_are_outstanding_exactly_while_waiting_and_settled_once(history: History) -> None:
    registered: dict[str, str] = {}
    for commit in history.commits:
        registered |= {str(wait.wait_id): "outstanding" for wait in commit.waits}
        for settlement in commit.settlements:
            assert registered[str(settlement.wait_id)] == "outstanding"
            registered[str(settlement.wait_id)] = settlement.status.value
            assert (settlement.resolution is None) == (settlement.status.value != "resolved")
        outstanding = {wait_id for wait_id, status in registered.items() if status == "outstanding"}
        assert outstanding == {str(wait.wait_id) for wait in commit.state.waits}
        assert bool(outstanding) == (commit.state.status.value == "waiting")
        positions = [wait.position for wait in commit.state.settled]
        assert positions == sorted(positions)


@given(histories())
def test_a_commit_stores_each_body_that_its_events_name(history: History) -> None:
    for commit in history.commits:
        stored = {str(digest) for digest, _ in bodies_of(commit)}
        calls = {"model", "tool"}
        for event in commit.events:
            data = json.loads(event.data)
            named = {
                data[name]
                for name in ("admission_digest", "checkpoint_digest", "result_digest", "outcome_digest")
                if name in data
            } | {each["digest"] for each in data.get("waits", [])}
            if event.kind.text.split("-")[0] not in calls:
                assert named <= stored


@given(histories(steps=30))
@settings(max_examples=20)
def test_a_stored_event_is_equal_to_the_one_that_was_built(history: History) -> None:
    for event in history.events:
        assert as_stored(event) == event
        assert as_stored(event).made_from is None
        assert parse_data(known(event)[0], event.data) == event.made_from
