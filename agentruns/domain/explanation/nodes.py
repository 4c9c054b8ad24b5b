"""What the nodes of the current superstep say: one is to be tried again later, or the run cannot succeed any more."""

from __future__ import annotations

from collections.abc import Iterator

from agentruns.domain.explanation.explanation import ExplanationReason, ReasonCode
from agentruns.domain.explanation.facts import ClaimConditions, ObservedAttempt, ObservedRun
from agentruns.domain.explanation.words import counted, future, since
from agentruns.domain.ledger.run_data import MAX_ATTEMPTS
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp


def deferral_reasons(run: ObservedRun) -> Iterator[ExplanationReason]:
    """Tell which node is tried again first, and when."""
    gates = sorted(deferrals(run), key=lambda deferral: (deferral[0].micros, deferral[1].node_id))
    if gates:
        (gate, first), *others = gates
        more = f", and {counted(len(others), 'other node')} later" if others else ""
        yield ExplanationReason(
            code=ReasonCode.DEFERRED,
            sentence=f"Node {first.node_id} failed{_code_of(first)} in attempt {first.attempt} of {MAX_ATTEMPTS}"
            f" and is not started again before {future(gate, run.now)}{more}.",
            action=None,
            needs_action=False,
        )


def deferrals(run: ObservedRun) -> Iterator[tuple[Timestamp, ObservedAttempt]]:
    """Give the nodes that may be started again, but not yet."""
    for each in run.attempts if run.status is RunStatus.ACTIVE else ():
        if each.not_before is not None and not each.is_last and run.now < each.not_before:
            yield each.not_before, each


def block_reasons(run: ObservedRun, conditions: ClaimConditions | None) -> Iterator[ExplanationReason]:
    """Tell what the run is going to fail of."""
    if run.status is not RunStatus.ACTIVE:
        return
    why = _failed_nodes(run) or _used_up(run, None if conditions is None else conditions.maximum_supersteps)
    why = why or _rejected(run, None if conditions is None else conditions.rejection)
    if why is not None:
        who = "its holder fails it" if run.is_held else "the next claim fails it"
        sentence = f"{why}: the run cannot go on, and {who}."
        yield ExplanationReason(code=ReasonCode.BLOCKED, sentence=sentence, action=None, needs_action=False)


def _failed_nodes(run: ObservedRun) -> str | None:
    """Tell of the node whose failure the run's becomes: the first one by its id."""
    blocked = [each for each in run.attempts if _is_blocked(run, each)]
    if not blocked:
        return None
    more = f", and {counted(len(blocked) - 1, 'other node')} likewise" if len(blocked) > 1 else ""
    return f"{_end_of(run, blocked[0])}{more}"


def _used_up(run: ObservedRun, maximum: int | None) -> str | None:
    """Tell of a graph that permits no further step."""
    if maximum is None or run.superstep is None or run.superstep < maximum:
        return None
    reached = since(run.head_recorded_at, run.now)
    return f"The run has made {counted(maximum, 'superstep')}, as many as its graph permits, {reached}"


def _rejected(run: ObservedRun, rejection: str | None) -> str | None:
    """Tell of results that cannot be joined."""
    if rejection is None:
        return None
    ended = since(run.head_recorded_at, run.now)
    return f"The results of superstep {run.superstep} cannot be joined ({rejection}), {ended}"


def _is_blocked(run: ObservedRun, each: ObservedAttempt) -> bool:
    if each.has_failed:
        return each.not_before is None or each.is_last
    return each.has_failed is None and each.is_last and not run.is_in_flight(each)


def _end_of(run: ObservedRun, each: ObservedAttempt) -> str:
    if each.has_failed is None:
        started = since(each.started_at, run.now)
        return f"Node {each.node_id} was left by a dead worker in attempt {each.attempt}, its last one, {started}"
    which = f"in attempt {each.attempt} of {MAX_ATTEMPTS}"
    advice = " and may not be tried again" if each.not_before is None else ""
    return f"Node {each.node_id} failed{_code_of(each)} {which}{advice}, {since(each.ended_at, run.now)}"


def _code_of(each: ObservedAttempt) -> str:
    return "" if each.failure_code is None else f" with {each.failure_code}"
