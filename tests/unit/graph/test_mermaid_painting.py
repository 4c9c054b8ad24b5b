"""The marks that a run puts on the nodes of its graph."""

from __future__ import annotations

import pytest

from agentruns.domain.graph.painting import LastAttempt, paint
from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus

A, B = NodeId("a"), NodeId("b")
ACTIVE, WAITING, CANCELLING = RunStatus.ACTIVE, RunStatus.WAITING, RunStatus.CANCELLATION_REQUESTED


def last(superstep: int, ended: str | None = None, *, is_held: bool = False) -> LastAttempt:
    return LastAttempt(superstep=superstep, ended=ended, is_held=is_held)


def marked(status: RunStatus, attempt: LastAttempt | None, *, is_ready: bool) -> str | None:
    """Paint one node of a run that stands in superstep 3."""
    ready, attempts = {A} if is_ready else set(), {} if attempt is None else {A: attempt}
    return paint(status=status, superstep=3, ready=ready, attempts=attempts).get(A)


@pytest.mark.parametrize(
    ("attempt", "active", "waiting", "cancelling"),
    [
        (None, "next", "waiting", None),
        (last(2, "succeeded"), "next", "waiting", "done"),
        (last(2, "failed"), "next", "waiting", "failed"),
        (last(2, is_held=True), "next", "waiting", "running"),
        (last(3), "next", "waiting", None),
        (last(3, is_held=True), "running", "running", "running"),
        (last(3, "succeeded"), "done", "done", "done"),
        (last(3, "failed"), "failed", "failed", "failed"),
    ],
)
def test_a_ready_node_is_marked_by_what_it_did_in_this_superstep(
    attempt: LastAttempt | None, active: str | None, waiting: str | None, cancelling: str | None
) -> None:
    assert marked(ACTIVE, attempt, is_ready=True) == active
    assert marked(WAITING, attempt, is_ready=True) == waiting
    assert marked(CANCELLING, attempt, is_ready=True) == cancelling


@pytest.mark.parametrize("status", [status for status in RunStatus if status.is_terminal])
def test_nothing_comes_next_in_a_run_that_is_over(status: RunStatus) -> None:
    assert marked(status, None, is_ready=True) is None
    assert marked(status, last(3), is_ready=True) is None
    assert marked(status, last(2, "succeeded"), is_ready=True) == "done"


def test_a_node_that_is_not_ready_is_marked_by_its_last_attempt() -> None:
    for ended, mark in (("succeeded", "done"), ("failed", "failed"), (None, None)):
        assert marked(ACTIVE, last(0, ended), is_ready=False) == mark
    assert marked(ACTIVE, None, is_ready=False) is None


def test_nodes_are_marked_each_for_itself_and_in_the_order_of_their_ids() -> None:
    marks = paint(status=ACTIVE, superstep=1, ready=[B], attempts={B: last(1, is_held=True), A: last(0, "succeeded")})
    assert list(marks.items()) == [(A, "done"), (B, "running")]
