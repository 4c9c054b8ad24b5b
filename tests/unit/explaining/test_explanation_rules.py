"""What is told of a run for what was read of it: each reason, their order, and what damage leaves out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from agentruns.domain.digests import Digest, plain_digest
from agentruns.domain.explanation.explanation import ReasonCode, RunVerdict
from agentruns.domain.explanation.facts import (
    ClaimConditions,
    ObservedAttempt,
    ObservedGraph,
    ObservedIsolation,
    ObservedRequest,
    ObservedRun,
    ObservedWait,
)
from agentruns.domain.explanation.rules import explained
from agentruns.domain.explanation.words import counted, instant, since, span
from agentruns.domain.ids import EventId, QuarantineId, RunId, WaitId
from agentruns.domain.scalars import FailureCode, TenantId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp

NOW = Timestamp.parse("2040-01-01T12:00:00.000000Z")
RUN = RunId.parse("01890000-0000-7000-8000-000000000001")
WAIT = WaitId.parse("01890000-0000-7000-8000-000000000002")
EVENT = EventId.parse("01890000-0000-7000-8000-000000000003")
QUARANTINE = QuarantineId.parse("01890000-0000-7000-8000-000000000004")
GRAPH = ObservedGraph(digest=plain_digest(b"graph"), name="triage", version="1.0.0")
FREE = ClaimConditions(live_leases=0, maximum_live=None, has_room=True, is_in_policy=True, maximum_supersteps=8)


def at(**span: float) -> Timestamp:
    """Give an instant before now, or after it by less than nothing."""
    return NOW.plus(-timedelta(**span))


#: Ready for ten seconds, and never claimed.
READY = ObservedRun(
    tenant_id=TenantId("acme"),
    run_id=RUN,
    now=NOW,
    status=RunStatus.ACTIVE,
    superstep=0,
    head_recorded_at=at(seconds=10),
    epoch=0,
    lease_renewed_at=None,
    lease_expires_at=None,
    ready_at=at(seconds=10),
    not_before=None,
    deadline_at=None,
    graph=GRAPH,
    isolation=None,
    request=None,
    waits=(),
    attempts=(),
)
HELD = evolve(READY, epoch=3, lease_renewed_at=at(seconds=2), lease_expires_at=at(seconds=-28))
ASLEEP = evolve(READY, epoch=1, status=RunStatus.WAITING, ready_at=None)
TIMER = ObservedWait(wait_id=WAIT, kind="sleep", registered_at=at(minutes=5), due_at=at(seconds=-5), expires_at=None)
INTERRUPT = ObservedWait(wait_id=WAIT, kind="approval", registered_at=at(hours=5), due_at=None, expires_at=None)
OPEN = ObservedAttempt(
    node_id="a",
    attempt=1,
    epoch=3,
    started_at=at(seconds=4),
    has_failed=None,
    ended_at=None,
    not_before=None,
    failure_code=None,
)
FAILED = evolve(OPEN, has_failed=True, ended_at=at(seconds=3), failure_code=FailureCode("shop.closed"))
ISOLATION = ObservedIsolation(
    quarantined_at=at(days=2), quarantine_id=QUARANTINE, cause="integrity_failure", component="event.digest"
)


def codes(
    run: ObservedRun, conditions: ClaimConditions | None = FREE, digests: tuple[Digest, ...] | None = None
) -> Any:
    """Give the verdict and the codes of the reasons."""
    explanation = explained(run, conditions if run.is_due else None, graph_digests=digests)
    return explanation.verdict.value, [reason.code.value for reason in explanation.reasons]


def sentence(run: ObservedRun, code: ReasonCode, conditions: ClaimConditions = FREE) -> str:
    """Give the sentence of the only reason with a code."""
    explanation = explained(run, conditions if run.is_due else None, graph_digests=None)
    (found,) = (reason.sentence for reason in explanation.reasons if reason.code is code)
    return found


@pytest.mark.parametrize(
    ("run", "verdict", "expected"),
    [
        (READY, "waiting", ["never_claimed"]),
        (evolve(READY, ready_at=at(seconds=60)), "waiting", ["never_claimed"]),
        (evolve(READY, ready_at=at(seconds=60.000001)), "stuck", ["never_claimed"]),
        (evolve(READY, epoch=2), "waiting", ["due_not_claimed"]),
        (evolve(READY, epoch=2, not_before=at()), "waiting", ["due_not_claimed"]),
        (evolve(READY, epoch=2, not_before=at(seconds=-0.000001)), "waiting", ["deferred"]),
        (
            evolve(READY, epoch=2, not_before=at(seconds=-9), attempts=(evolve(FAILED, not_before=at(seconds=-9)),)),
            "waiting",
            ["deferred"],
        ),
        (HELD, "progressing", ["lease_held"]),
        (evolve(HELD, lease_expires_at=at(seconds=-0.000001)), "progressing", ["lease_held"]),
        (evolve(HELD, lease_expires_at=NOW), "waiting", ["lease_expired"]),
        (evolve(HELD, ready_at=at(hours=1), lease_expires_at=at(minutes=2)), "stuck", ["lease_expired"]),
        (evolve(ASLEEP, waits=(TIMER,)), "waiting", ["waiting_for_timer"]),
        (evolve(ASLEEP, waits=(evolve(TIMER, due_at=NOW),)), "waiting", ["timer_overdue"]),
        (evolve(ASLEEP, waits=(evolve(TIMER, due_at=at(minutes=2)),)), "stuck", ["timer_overdue"]),
        (evolve(ASLEEP, waits=(INTERRUPT,)), "waiting", ["waiting_for_interrupt"]),
        (evolve(ASLEEP, waits=(evolve(INTERRUPT, expires_at=NOW),)), "waiting", ["interrupt_expired"]),
        (evolve(ASLEEP, waits=(evolve(INTERRUPT, expires_at=at(minutes=2)),)), "stuck", ["interrupt_expired"]),
        (evolve(READY, attempts=(FAILED,)), "waiting", ["blocked", "never_claimed"]),
        (evolve(READY, superstep=8), "waiting", ["blocked", "never_claimed"]),
        (evolve(READY, superstep=7), "waiting", ["never_claimed"]),
        (evolve(READY, deadline_at=NOW), "waiting", ["deadline_passed", "never_claimed"]),
        (evolve(READY, deadline_at=at(seconds=-0.000001)), "waiting", ["never_claimed"]),
        (evolve(READY, deadline_at=at(minutes=2)), "stuck", ["deadline_passed", "never_claimed"]),
        (
            evolve(READY, status=RunStatus.CANCELLATION_REQUESTED, deadline_at=at(minutes=2)),
            "waiting",
            ["cancellation_requested", "never_claimed"],
        ),
        (evolve(READY, superstep=None, ready_at=None), "stuck", ["no_checkpoint"]),
        (evolve(READY, isolation=ISOLATION), "stuck", ["quarantined"]),
    ],
)
def test_each_reason_stands_on_its_instant(run: ObservedRun, verdict: str, expected: list[str]) -> None:
    assert codes(run) == (verdict, expected)


@pytest.mark.parametrize("status", [RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED])
def test_a_run_that_is_over_has_no_reason_but_its_isolation(status: RunStatus) -> None:
    over = evolve(READY, status=status, ready_at=None, deadline_at=at(days=1), attempts=(FAILED,))
    assert codes(over, digests=()) == ("finished", [])
    assert codes(evolve(over, isolation=ISOLATION), digests=()) == ("finished", ["quarantined"])


def test_the_causes_of_a_run_that_nobody_holds_come_in_order() -> None:
    full = ClaimConditions(live_leases=0, maximum_live=2, has_room=False, is_in_policy=False, maximum_supersteps=8)
    run = evolve(
        READY,
        deadline_at=at(seconds=9),
        attempts=(evolve(FAILED, node_id="b", not_before=at(seconds=-9)), evolve(FAILED, node_id="c")),
    )
    later = ["tenant_at_capacity", "not_in_fairness_policy", "never_claimed"]
    expected = ["deadline_passed", "deferred", "graph_not_deployed", "blocked", *later]
    assert codes(run, full, ()) == ("stuck", expected)
    assert codes(run, full) == ("waiting", [code for code in expected if code != "graph_not_deployed"])
    asked = evolve(run, status=RunStatus.CANCELLATION_REQUESTED)
    assert codes(asked, full, ()) == ("stuck", ["graph_not_deployed", "cancellation_requested", *later])
    gated = evolve(asked, not_before=at(seconds=-9))
    assert codes(gated, full, ()) == ("waiting", ["graph_not_deployed", "cancellation_requested", "deferred"])


def test_the_causes_of_a_run_that_waits_come_in_order() -> None:
    waits = (
        TIMER,
        INTERRUPT,
        evolve(TIMER, due_at=at(seconds=1)),
        evolve(INTERRUPT, expires_at=at(seconds=2)),
        evolve(INTERRUPT, expires_at=at(seconds=-2)),
    )
    run = evolve(ASLEEP, waits=waits, deadline_at=at(seconds=3))
    expected = [
        "deadline_passed",
        "interrupt_expired",
        "timer_overdue",
        "waiting_for_interrupt",
        "waiting_for_interrupt",
        "waiting_for_timer",
        "graph_not_deployed",
    ]
    assert codes(run, digests=()) == ("stuck", expected)
    assert codes(run) == ("waiting", expected[:-1])
    isolated = explained(evolve(run, isolation=ISOLATION), None, graph_digests=())
    assert [reason.code.value for reason in isolated.reasons] == ["quarantined", *expected]
    assert [reason.action is None for reason in isolated.reasons] == [False, *[True] * len(expected)]
    assert isolated.next_action == isolated.reasons[0].action


def test_a_graph_that_is_not_here_matters_as_soon_as_somebody_wants_it() -> None:
    assert codes(evolve(ASLEEP, waits=(INTERRUPT,)), digests=()) == (
        "waiting",
        ["waiting_for_interrupt", "graph_not_deployed"],
    )
    late = evolve(ASLEEP, waits=(evolve(TIMER, due_at=at(minutes=2)),))
    assert explained(late, None, graph_digests=()).reasons[1].needs_action
    assert codes(evolve(READY, ready_at=at(minutes=2)), digests=()) == (
        "stuck",
        ["graph_not_deployed", "never_claimed"],
    )
    assert codes(READY, digests=(GRAPH.digest,)) == ("waiting", ["never_claimed"])
    assert codes(evolve(READY, graph=None), digests=()) == ("waiting", ["never_claimed"])
    assert codes(HELD, digests=()) == ("progressing", ["lease_held"])
    nameless = evolve(READY, graph=evolve(GRAPH, name=None, version=None))
    (reason, _) = explained(nameless, FREE, graph_digests=()).reasons
    assert reason.sentence == f"Nobody here has the graph {GRAPH.digest}, which the run is pinned to."


def test_nobody_is_missed_while_the_tenant_is_served() -> None:
    late = evolve(READY, ready_at=at(hours=1))
    served = evolve(FREE, live_leases=1, is_in_policy=False)
    assert codes(late, served) == ("waiting", ["never_claimed"])
    assert sentence(late, ReasonCode.NEVER_CLAIMED, served).endswith("The tenant has 1 live lease.")
    assert codes(late, evolve(FREE, is_in_policy=False)) == ("stuck", ["not_in_fairness_policy", "never_claimed"])


def test_of_several_nodes_the_first_one_is_named_and_the_others_are_counted() -> None:
    two = (evolve(OPEN, node_id="b", started_at=at(seconds=9)), OPEN, evolve(OPEN, node_id="old", epoch=2))
    flying = sentence(evolve(HELD, attempts=two), ReasonCode.LEASE_HELD)
    assert flying == (
        "Epoch 3 holds the lease, renewed 2 s ago and expiring in 28 s; node b is in flight in attempt 1"
        " since 2040-01-01 11:59:51Z, for 9 s, and 1 other node likewise."
    )
    gated = [evolve(FAILED, node_id=name, not_before=at(seconds=-n)) for n, name in ((7, "a"), (5, "b"), (6, "c"))]
    assert sentence(evolve(READY, attempts=tuple(gated)), ReasonCode.DEFERRED) == (
        "Node b failed with shop.closed in attempt 1 of 64 and is not started again before 2040-01-01 12:00:05Z,"
        " in 5 s, and 2 other nodes later."
    )
    failed = (FAILED, evolve(FAILED, node_id="b"), evolve(FAILED, node_id="c", attempt=64, not_before=at(seconds=-9)))
    assert sentence(evolve(HELD, attempts=failed), ReasonCode.BLOCKED) == (
        "Node a failed with shop.closed in attempt 1 of 64 and may not be tried again, since 2040-01-01 11:59:57Z,"
        " for 3 s, and 2 other nodes likewise: the run cannot go on, and its holder fails it."
    )


def test_the_last_attempt_blocks_when_it_failed_or_was_left_and_not_while_it_is_in_flight() -> None:
    last = evolve(OPEN, attempt=64)
    assert codes(evolve(HELD, attempts=(last,))) == ("progressing", ["lease_held"])
    assert codes(evolve(HELD, attempts=(evolve(last, epoch=2),))) == ("progressing", ["lease_held", "blocked"])
    assert codes(evolve(READY, attempts=(last,))) == ("waiting", ["blocked", "never_claimed"])
    failed = evolve(FAILED, attempt=64, not_before=at(seconds=-9))
    assert codes(evolve(READY, attempts=(failed,))) == ("waiting", ["blocked", "never_claimed"])
    assert sentence(evolve(READY, attempts=(failed,)), ReasonCode.BLOCKED).startswith(
        "Node a failed with shop.closed in attempt 64 of 64, since 2040-01-01 11:59:57Z"
    )
    over = evolve(OPEN, has_failed=False, attempt=64, ended_at=at(seconds=1))
    assert codes(evolve(READY, attempts=(over,))) == ("waiting", ["never_claimed"])


def test_what_is_lost_is_left_out() -> None:
    unnamed = evolve(ISOLATION, quarantine_id=None, cause=None, component=None)
    said = sentence(evolve(READY, isolation=unnamed), ReasonCode.QUARANTINED)
    assert said == "The run has been isolated since 2039-12-30 12:00:00Z, for 2 d, and no record says why."
    lost = evolve(OPEN, epoch=None, started_at=None, attempt=64)
    assert "in attempt 64, its last one, since nobody knows when:" in sentence(
        evolve(READY, attempts=(lost,)), ReasonCode.BLOCKED
    )
    unread = sentence(evolve(READY, attempts=(evolve(FAILED, failure_code=None),)), ReasonCode.BLOCKED)
    assert unread.startswith("Node a failed in attempt 1 of 64 and")
    asleep = evolve(ASLEEP, waits=(evolve(TIMER, registered_at=None),))
    assert "since nobody knows when; it is due at" in sentence(asleep, ReasonCode.WAITING_FOR_TIMER)
    asked = evolve(READY, status=RunStatus.CANCELLATION_REQUESTED)
    assert sentence(asked, ReasonCode.CANCELLATION_REQUESTED) == (
        "Somebody asked for the end of the run; the next claim confirms that."
    )
    request = ObservedRequest(event_id=EVENT, requested_at=at(seconds=1), by_deadline=True)
    assert sentence(evolve(asked, request=request), ReasonCode.CANCELLATION_REQUESTED) == (
        f"Event {EVENT} asked for the end of the run at 2040-01-01 11:59:59Z, 1 s ago,"
        " since its deadline had passed; the next claim confirms that."
    )
    assert codes(evolve(READY, superstep=9), evolve(FREE, maximum_supersteps=None)) == ("waiting", ["never_claimed"])


def test_a_run_that_nothing_explains_contradicts_itself() -> None:
    explanation = explained(ASLEEP, None, graph_digests=None)
    assert (explanation.verdict, explanation.reasons) == (RunVerdict.STUCK, ())
    assert explanation.next_action == "load the run: its record contradicts itself, and the error says where"


@pytest.mark.parametrize(
    ("later", "text"),
    [
        (timedelta(seconds=-5), "0 s"),
        (timedelta(microseconds=999_999), "0 s"),
        (timedelta(seconds=1), "1 s"),
        (timedelta(seconds=60), "1 min"),
        (timedelta(seconds=61), "1 min 1 s"),
        (timedelta(hours=1, seconds=59), "1 h"),
        (timedelta(hours=23, minutes=59, seconds=59), "23 h 59 min"),
        (timedelta(days=400, hours=1, minutes=1), "400 d 1 h"),
    ],
)
def test_a_span_has_the_two_largest_units(later: timedelta, text: str) -> None:
    assert span(NOW, NOW.plus(later)) == text


def test_instants_and_counts_are_said_in_full() -> None:
    assert instant(Timestamp.parse("2040-01-01T12:00:00.999999Z")) == "2040-01-01 12:00:00Z"
    assert since(at(seconds=3), NOW) == "since 2040-01-01 11:59:57Z, for 3 s"
    assert (counted(0, "node"), counted(1, "node"), counted(2, "node")) == ("0 nodes", "1 node", "2 nodes")
