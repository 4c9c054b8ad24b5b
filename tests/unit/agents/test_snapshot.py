"""The public view of a run, and its schema document."""

from __future__ import annotations

import json
from copy import deepcopy
from importlib.resources import files
from typing import Any

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator

from agentruns.domain.failure import Failure, FailureCategory, FailureDetails
from agentruns.domain.ids import EventId
from agentruns.domain.numbers import DurationMillis, RunRevision
from agentruns.domain.outcome import SucceededOutcome
from agentruns.domain.retry_advice import ReconcileFirst, SafeAfter
from agentruns.domain.snapshot import AgentRunSnapshot, RunObservation
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.usage import BudgetUsage
from agentruns.domain.wire import from_json, from_wire, to_json, to_wire
from agentruns.errors import InvalidValueError
from agentruns.testing.outcome_samples import (
    ADMITTED_AT,
    COMPLETED_AT,
    artifact,
    outcome,
    provenance,
    result,
    snapshot,
)
from agentruns.testing.samples import failure, run_ids, sample_id, schema_reference

DOCUMENT = json.loads((files("agentruns.schemas") / "agent-run-snapshot-1.0.0.json").read_text("utf-8"))
VALIDATOR = Draft202012Validator(DOCUMENT)

STATUSES = [status for status in RunStatus if status is not RunStatus.PENDING]
TERMINAL = [status for status in STATUSES if status.is_terminal]


def failed(because: Failure) -> AgentRunSnapshot:
    return evolve(snapshot(RunStatus.FAILED), outcome=outcome(RunStatus.FAILED, because=because))


def succeeded() -> AgentRunSnapshot:
    """Give a snapshot with as much in it as there can be."""
    usage = BudgetUsage.of(output_bytes=64, artifact_bytes=20, known_costs={"EUR": 5, "USD": 2**64 - 1})
    full = result(output={"a": [1.5, None, "é"]}, artifacts=(artifact(1), artifact(2)), usage=usage)
    return evolve(snapshot(RunStatus.SUCCEEDED), outcome=SucceededOutcome(result=full))


EXAMPLES = [
    *map(snapshot, STATUSES),
    snapshot(RunStatus.WAITING, quarantined=True),
    succeeded(),
    failed(failure(retry_advice=SafeAfter(delay=DurationMillis(5)))),
    failed(failure(category=FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME, retry_advice=ReconcileFirst())),
    failed(
        failure(
            details=FailureDetails.of(schema_reference(), {"reason": ["x"]}), caused_by_event_id=sample_id(EventId, 5)
        )
    ),
]


def tree_of(given: AgentRunSnapshot) -> dict[str, Any]:
    tree = to_wire(given)
    assert isinstance(tree, dict)
    return tree


def refused(given: AgentRunSnapshot, **members: Any) -> tuple[str, str]:
    with pytest.raises(InvalidValueError) as caught:
        evolve(given, **members)
    return caught.value.type_name, caught.value.reason


# --- invariants -----------------------------------------------------------------------------------------------------


def test_no_snapshot_is_pending() -> None:
    assert refused(snapshot(), status=RunStatus.PENDING) == ("AgentRunSnapshot", "pending_atomic_admission")


def test_the_first_revision_is_one() -> None:
    assert refused(snapshot(), revision=RunRevision(0)) == ("AgentRunSnapshot", "zero_revision")


def test_nothing_changed_before_the_admission() -> None:
    before = Timestamp(ADMITTED_AT.micros - 1)
    assert refused(snapshot(), changed_at=before) == ("AgentRunSnapshot", "clock_regression")
    assert snapshot().changed_at == ADMITTED_AT


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("other", STATUSES)
def test_status_and_outcome_say_the_same(status: RunStatus, other: RunStatus) -> None:
    if outcome(status) == outcome(other):
        assert evolve(snapshot(status), outcome=outcome(other)).outcome == outcome(status)
        return
    assert refused(snapshot(status), outcome=outcome(other)) == ("AgentRunSnapshot", "outcome_status_mismatch")


@pytest.mark.parametrize("status", TERMINAL)
def test_the_end_is_the_last_change(status: RunStatus) -> None:
    later = Timestamp(COMPLETED_AT.micros + 1)
    assert refused(snapshot(status), changed_at=later) == ("AgentRunSnapshot", "completion_time_mismatch")


def test_the_result_is_the_runs_own() -> None:
    other = provenance(2)
    assert refused(snapshot(RunStatus.SUCCEEDED), provenance=other) == (
        "AgentRunSnapshot",
        "result_provenance_mismatch",
    )
    assert evolve(snapshot(RunStatus.FAILED), provenance=other).provenance == other


def test_invariants_come_in_their_order() -> None:
    """Break one more rule at a time, from the last to the first."""
    broken: dict[str, Any] = {}
    steps: tuple[tuple[str, dict[str, Any]], ...] = (
        ("result_provenance_mismatch", {"provenance": provenance(2)}),
        ("completion_time_mismatch", {"changed_at": Timestamp(COMPLETED_AT.micros + 1)}),
        ("outcome_status_mismatch", {"status": RunStatus.FAILED}),
        ("clock_regression", {"changed_at": Timestamp(0)}),
        ("zero_revision", {"revision": RunRevision(0)}),
        ("pending_atomic_admission", {"status": RunStatus.PENDING}),
    )
    for reason, members in steps:
        broken |= members
        assert refused(snapshot(RunStatus.SUCCEEDED), **broken)[1] == reason


def test_an_observation_is_run_and_revision() -> None:
    observed = RunObservation(run_id=run_ids().run_id, revision=RunRevision(2))
    assert snapshot(RunStatus.WAITING).observation == observed
    assert snapshot(RunStatus.WAITING, quarantined=True).observation == observed


# --- wire form and schema document ----------------------------------------------------------------------------------


def accepts(tree: object) -> bool:
    return VALIDATOR.is_valid(tree)


def test_the_document_is_a_schema_of_the_draft() -> None:
    Draft202012Validator.check_schema(DOCUMENT)
    assert DOCUMENT["$id"] == "https://agentruns.invalid/schemas/agent-run-snapshot/1.0.0"
    assert DOCUMENT["additionalProperties"] is False
    assert sorted(DOCUMENT["required"]) == sorted(tree_of(snapshot()))


@pytest.mark.parametrize("given", EXAMPLES)
def test_SUB_19_a_snapshot_round_trips_and_satisfies_the_document(given: AgentRunSnapshot) -> None:
    assert from_json(to_json(given), AgentRunSnapshot) == given
    assert from_wire(tree_of(given), AgentRunSnapshot) == given
    assert accepts(tree_of(given))


def test_SUB_19_a_snapshot_has_nine_members() -> None:
    assert list(tree_of(snapshot())) == [
        "provenance",
        "graph",
        "admission_digest",
        "admitted_at",
        "revision",
        "status",
        "changed_at",
        "quarantined",
        "outcome",
    ]
    assert tree_of(snapshot())["outcome"] is None


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("other", STATUSES)
def test_SUB_19_status_and_outcome_are_paired_both_ways(status: RunStatus, other: RunStatus) -> None:
    tree = tree_of(snapshot(status)) | {"outcome": tree_of(snapshot(other))["outcome"]}
    is_pair = outcome(status) == outcome(other)
    assert accepts(tree) is is_pair
    assert is_read(tree) is is_pair


def is_read(tree: dict[str, Any]) -> bool:
    try:
        from_wire(tree, AgentRunSnapshot)
    except InvalidValueError:
        return False
    return True


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """List the way to every value of ours; what a user put in is left alone."""
    if path[-1:] in (("output",), ("value",)):
        return []
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    if isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(place for token, child in inner for place in places(child, (*path, token)))]


def changed(tree: dict[str, Any], path: tuple[str | int, ...], change: Any) -> dict[str, Any]:
    copy: Any = deepcopy(tree)
    target = copy
    for token in path[:-1]:
        target = target[token]
    change(target, path[-1])
    result_tree: dict[str, Any] = copy
    return result_tree


def mutations(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """Damage one value at a time so that no rule of the wire form lets it pass."""

    def put(value: Any) -> Any:
        return lambda target, token: target.__setitem__(token, value)

    def drop(target: Any, token: Any) -> None:
        del target[token]

    def extend(target: Any, token: Any) -> None:
        target[token]["unknown"] = 1

    damaged = []
    for path in places(tree)[1:]:
        value: Any = tree
        for token in path:
            value = value[token]
        others = (1, 1.5, [value], {"unknown": value}, not value if isinstance(value, str) else "text")
        damaged += [changed(tree, path, put(other)) for other in others]
        if isinstance(value, str) and path[-1] != "message" and path[-1] != "subject":
            damaged += [changed(tree, path, put(value + end)) for end in ("\n", "\u00e9", " ")]
            damaged.append(changed(tree, path, put("")))
        if value is not None:
            damaged.append(changed(tree, path, put(None)))
        if isinstance(value, dict):
            damaged.append(changed(tree, path, extend))
        if isinstance(path[-1], str) and path[-1] not in {"details", "caused_by_event_id"}:
            damaged.append(changed(tree, path, drop))
    return damaged


@pytest.mark.parametrize("given", EXAMPLES)
def test_SUB_19_each_single_mutation_is_refused_both_ways(given: AgentRunSnapshot) -> None:
    for damaged in mutations(tree_of(given)):
        assert not accepts(damaged)
        assert not is_read(damaged)


@pytest.mark.parametrize("category", FailureCategory)
@pytest.mark.parametrize("kind", ["failed", "cancelled"])
@pytest.mark.parametrize(
    "advice", [{"kind": "never"}, {"kind": "safe_after", "delay": "1"}, {"kind": "reconcile_first"}]
)
def test_SUB_19_the_failure_is_of_its_kind_both_ways(
    category: FailureCategory, kind: str, advice: dict[str, str]
) -> None:
    tree = tree_of(snapshot(RunStatus(kind)))
    tree["outcome"]["failure"] |= {"category": category.value, "retry_advice": advice}
    assert accepts(tree) is is_read(tree)


@pytest.mark.parametrize("text", ["0", "1", "9223372036854775807", "9223372036854775808", "01", "-1", "+1", "1.0", ""])
def test_SUB_19_revisions_are_bounded_both_ways(text: str) -> None:
    tree = tree_of(snapshot()) | {"revision": text}
    assert accepts(tree) is is_read(tree) is (text in {"1", "9223372036854775807"})


@pytest.mark.parametrize("text", ["0", "18446744073709551615", "18446744073709551616", "99999999999999999999", "00"])
def test_SUB_19_counters_are_bounded_both_ways(text: str) -> None:
    tree = tree_of(snapshot(RunStatus.FAILED))
    tree["outcome"]["usage"]["retries"] = text
    assert accepts(tree) is is_read(tree) is (text in {"0", "18446744073709551615"})


def test_a_snapshot_shows_nothing_private() -> None:
    assert "canary" not in repr(failed(failure(message="canary")))
    private = SucceededOutcome(result=result(output="canary"))
    assert "canary" not in repr(evolve(snapshot(RunStatus.SUCCEEDED), outcome=private))
