"""Failures are public, and say themselves whether they may be repeated."""

from __future__ import annotations

import json
from importlib.resources import files
from itertools import product

import pytest
from attrs import evolve

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.failure import (
    DETAILS_LIMITS,
    Failure,
    FailureCategory,
    FailureDetails,
    NeverRetry,
    ReconcileFirst,
    RetryAdvice,
    SafeAfter,
)
from agentruns.domain.failure_codes import NODE_TASK_PANICKED, ORIGIN_RUNTIME
from agentruns.domain.failure_details import GRAPH_FAILURE_DETAILS, exception_details, reason_details
from agentruns.domain.ids import FailureId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.numbers import DurationMillis
from agentruns.domain.wire import from_wire, to_wire
from agentruns.errors import InvalidJsonError, InvalidValueError
from agentruns.testing.samples import cancellation, failure, sample_id, schema_reference

THIRTY_DAYS = 30 * 24 * 60 * 60 * 1000
ADVICE: list[RetryAdvice] = [NeverRetry(), SafeAfter(delay=DurationMillis(0)), ReconcileFirst()]


@pytest.mark.parametrize(("category", "advice"), list(product(FailureCategory, ADVICE)))
def test_a_failure_is_ambiguous_exactly_when_it_must_be_reconciled(
    category: FailureCategory, advice: RetryAdvice
) -> None:
    is_ambiguous = category is FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME
    if is_ambiguous is isinstance(advice, ReconcileFirst):
        assert failure(category=category, retry_advice=advice).retry_advice == advice
        return
    with pytest.raises(InvalidValueError) as caught:
        failure(category=category, retry_advice=advice)
    assert (caught.value.type_name, caught.value.reason) == ("Failure", "ambiguity_mismatch")


def test_a_delay_is_at_most_thirty_days_and_never_clamped() -> None:
    assert SafeAfter(delay=DurationMillis(THIRTY_DAYS)).delay == DurationMillis(THIRTY_DAYS)
    with pytest.raises(InvalidValueError) as caught:
        SafeAfter(delay=DurationMillis(THIRTY_DAYS + 1))
    assert (caught.value.type_name, caught.value.reason) == ("SafeAfter", "delay_too_long")


@pytest.mark.parametrize(
    ("advice", "wire"),
    [
        (NeverRetry(), {"kind": "never"}),
        (SafeAfter(delay=DurationMillis(1500)), {"kind": "safe_after", "delay": "1500"}),
        (ReconcileFirst(), {"kind": "reconcile_first"}),
    ],
)
def test_advice_has_a_tag_on_the_wire(advice: RetryAdvice, wire: dict[str, str]) -> None:
    category = (
        FailureCategory.AMBIGUOUS_EXTERNAL_OUTCOME if wire["kind"] == "reconcile_first" else FailureCategory.INTERNAL
    )
    stated = failure(category=category, retry_advice=advice)
    tree = to_wire(stated)
    assert isinstance(tree, dict)
    assert tree["retry_advice"] == wire
    assert from_wire(tree, Failure) == stated


def test_a_failure_leaves_out_what_it_lacks() -> None:
    assert to_wire(failure()) == {
        "id": "0198c0de-0000-7000-8000-000000000001",
        "category": "internal",
        "code": "sample.failed",
        "origin": "sample",
        "message": "it did not work",
        "retry_advice": {"kind": "never"},
    }


@pytest.mark.parametrize(
    ("message", "reason"), [("", "too_short"), ("x" * 1025, "too_long"), ("two\nlines", "invalid_format")]
)
def test_a_message_is_public_text_on_one_line(message: str, reason: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        failure(message=message)
    assert (caught.value.type_name, caught.value.reason) == ("Failure", reason)


def test_a_message_is_in_no_repr() -> None:
    details = FailureDetails.of(schema_reference(), {"canary": "canary"})
    assert "canary" not in repr(failure(message="canary", details=details))
    assert "canary" not in repr(details)


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ("x" * 4097, "string_too_large"),
        (["x" * 4000] * 5, "too_large"),
        ([0] * 65, "too_many_entries"),
        ([[0] * 64] * 8, "too_many_nodes"),
        ({"x" * 129: 0}, "name_too_large"),
        ([[[[[[[[[]]]]]]]]], "nesting_too_deep"),
    ],
)
def test_details_are_small(tree: object, reason: str) -> None:
    with pytest.raises(InvalidJsonError) as caught:
        FailureDetails.of(schema_reference(), tree)  # type: ignore[arg-type]  # JSON
    assert caught.value.reason == reason
    with pytest.raises(InvalidJsonError):
        FailureDetails(schema=schema_reference(), value=BoundedJson.of(tree, JsonLimits.MAXIMUM))  # type: ignore[arg-type]  # JSON


def test_details_at_their_limits_are_accepted() -> None:
    value = BoundedJson.of({"n" * 128: ["x" * 4096, *[0] * 63]}, DETAILS_LIMITS)
    assert FailureDetails(schema=schema_reference(), value=value).value == value


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("canary")

    __repr__ = __str__


def cyclic() -> Exception:
    one, two = ValueError("canary"), ValueError("canary")
    one.__cause__, two.__cause__ = two, one
    return one


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (HostileError("canary"), f"{__name__}.HostileError"),
        (cyclic(), "builtins.ValueError"),
        (ExceptionGroup("canary", [ValueError("canary")] * 10_000), "builtins.ExceptionGroup"),
        (type("Fehlér" + "x" * 200, (Exception,), {"__module__": "m"})(), ("m.Fehl_r" + "x" * 200)[:128]),
    ],
)
def test_an_exception_gives_the_name_of_its_class_only(error: Exception, name: str) -> None:
    declared = Failure.from_exception(error, id=sample_id(FailureId, 1), details=exception_details(error))
    assert declared.message == f"unexpected exception of class {name}"
    assert (declared.code, declared.origin) == (NODE_TASK_PANICKED, ORIGIN_RUNTIME)
    assert (declared.category, declared.retry_advice) == (FailureCategory.INTERNAL, NeverRetry())
    assert declared.details is not None
    assert declared.details.value.value == {"exception_type": name}
    assert "canary" not in str(to_wire(declared))


def test_an_exception_may_be_declared_as_something_else() -> None:
    declared = Failure.from_exception(
        ValueError(),
        id=sample_id(FailureId, 1),
        category=FailureCategory.RATE_LIMITED,
        retry_advice=SafeAfter(delay=DurationMillis(1)),
    )
    assert (declared.category, declared.retry_advice) == (
        FailureCategory.RATE_LIMITED,
        SafeAfter(delay=DurationMillis(1)),
    )
    assert declared.details is None


def test_a_cancellation_is_never_to_be_repeated() -> None:
    assert cancellation().is_cancellation
    assert not failure().is_cancellation
    assert not evolve(cancellation(), retry_advice=SafeAfter(delay=DurationMillis(1))).is_cancellation


def test_the_librarys_details_refer_to_the_shipped_document() -> None:
    document = json.loads((files("agentruns.schemas") / "graph-failure-details-1.0.0.json").read_text("utf-8"))
    assert GRAPH_FAILURE_DETAILS.id.text == document["$id"]
    assert GRAPH_FAILURE_DETAILS.digest == BoundedJson.of(document).digest
    assert reason_details("control_undeclared").value.value == {"reason": "control_undeclared"}
