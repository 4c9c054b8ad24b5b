"""Judge why a run does not progress: what was read goes in, reasons in the order of causes come out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from attrs import evolve

from agentruns.domain.digests import Digest
from agentruns.domain.explanation.claims import claim_reasons, gate_reasons, graph_reasons, lease_reasons
from agentruns.domain.explanation.explanation import ExplanationReason, ReasonCode, RunExplanation, RunVerdict
from agentruns.domain.explanation.facts import ClaimConditions, ObservedIsolation, ObservedRun
from agentruns.domain.explanation.nodes import block_reasons, deferral_reasons
from agentruns.domain.explanation.waits import deadline_reasons, wait_reasons
from agentruns.domain.explanation.words import past, since
from agentruns.domain.status import RunStatus

#: Nothing explains the run, so its rows contradict one another.
_CONTRADICTION: Final = "load the run: its record contradicts itself, and the error says where"


def explained(
    run: ObservedRun,
    conditions: ClaimConditions | None,
    *,
    graph_digests: Collection[Digest] | None,
) -> RunExplanation:
    """Explain a run.

    Args:
        run: what its record says.
        conditions: of a claim; only of interest while the run is due.
        graph_digests: of the graphs that this process has; ``None`` where that is not asked.
    """
    reasons = tuple(_reasons(run, conditions, graph_digests))
    verdict = _verdict(run, reasons)
    action = next((reason.action for reason in reasons if reason.action is not None), None)
    if verdict is RunVerdict.STUCK and not reasons:
        action = _CONTRADICTION
    return RunExplanation(verdict=verdict, reasons=reasons, next_action=action, observed_at=run.now)


def _verdict(run: ObservedRun, reasons: tuple[ExplanationReason, ...]) -> RunVerdict:
    if run.status.is_terminal:
        return RunVerdict.FINISHED
    if run.is_held:
        return RunVerdict.PROGRESSING
    needs_action = not reasons or any(reason.needs_action for reason in reasons)
    return RunVerdict.STUCK if needs_action else RunVerdict.WAITING


def _reasons(
    run: ObservedRun, conditions: ClaimConditions | None, graph_digests: Collection[Digest] | None
) -> Iterator[ExplanationReason]:
    if run.isolation is None:
        yield from _in_order(run, conditions, graph_digests)
        return
    yield _quarantined(run, run.isolation)
    # Nobody claims or supervises the run meanwhile, so nothing else that applies can be acted on.
    for reason in _in_order(run, conditions, graph_digests):
        yield evolve(reason, action=None, needs_action=False)


def _in_order(
    run: ObservedRun, conditions: ClaimConditions | None, graph_digests: Collection[Digest] | None
) -> Iterator[ExplanationReason]:
    """Give what applies to a run that is not isolated, the cause first."""
    if run.status.is_terminal:
        return
    if run.superstep is None:
        yield _without_checkpoint()
    yield from lease_reasons(run)
    yield from deadline_reasons(run)
    yield from wait_reasons(run)
    yield from deferral_reasons(run)
    yield from graph_reasons(run, graph_digests)
    yield from _request_reasons(run)
    yield from block_reasons(run, conditions)
    yield from gate_reasons(run)
    yield from claim_reasons(run, conditions)


def _quarantined(run: ObservedRun, isolation: ObservedIsolation) -> ExplanationReason:
    isolated = since(isolation.quarantined_at, run.now)
    if isolation.quarantine_id is None:
        sentence = f"The run has been isolated {isolated}, and no record says why."
        action = "submit the work again under a new key"
    else:
        named = f"{run.tenant_id} {run.run_id} {isolation.quarantine_id}"
        sentence = (
            f"Quarantine {isolation.quarantine_id} has isolated the run {isolated}:"
            f" {isolation.cause} in {isolation.component}."
        )
        action = (
            f"look at it with `agentruns quarantine show {named}`; put it right and release it"
            " with `agentruns quarantine release`, or submit the work again under a new key"
        )
    return ExplanationReason(code=ReasonCode.QUARANTINED, sentence=sentence, action=action, needs_action=True)


def _without_checkpoint() -> ExplanationReason:
    return ExplanationReason(
        code=ReasonCode.NO_CHECKPOINT,
        sentence="The run has no checkpoint, so none of its nodes can start; no release of this package made it so.",
        action=None,
        needs_action=True,
    )


def _request_reasons(run: ObservedRun) -> Iterator[ExplanationReason]:
    if run.status is RunStatus.CANCELLATION_REQUESTED:
        who = "its holder confirms that" if run.is_held else "the next claim confirms that"
        asked = "Somebody asked for the end of the run"
        if run.request is not None:
            why = ", since its deadline had passed" if run.request.by_deadline else ""
            when = past(run.request.requested_at, run.now)
            asked = f"Event {run.request.event_id} asked for the end of the run {when}{why}"
        yield ExplanationReason(
            code=ReasonCode.CANCELLATION_REQUESTED, sentence=f"{asked}; {who}.", action=None, needs_action=False
        )
