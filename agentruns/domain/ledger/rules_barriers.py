"""The rules of the barriers that end a superstep."""

from __future__ import annotations

from types import MappingProxyType

from attrs import evolve

from agentruns.domain.graph.barrier import BarrierDisposition, BarrierPlan, as_read
from agentruns.domain.ledger.bodies import OUTCOME
from agentruns.domain.ledger.data import BarrierContinued, BarrierSucceeded, BarrierWaiting
from agentruns.domain.ledger.outcomes import StoredSuccess
from agentruns.domain.ledger.records import CurrentCheckpoint, OutcomeFacts, OutstandingWait
from agentruns.domain.ledger.rules_ends import check_settled
from agentruns.domain.ledger.step import Changes, Consequence, Step
from agentruns.domain.status import RunStatus
from agentruns.errors import AgentRunsError, BarrierRejectedError, CorruptDataError

RULE = "barrier"


def continued(step: Step, data: BarrierContinued) -> Consequence:
    """Begin the next superstep at once."""
    plan = _plan(step, BarrierDisposition.CONTINUE)
    return _advanced(step, data, plan, {})


def waiting(step: Step, data: BarrierWaiting) -> Consequence:
    """Let the run sleep until its waits are settled."""
    plan = _plan(step, BarrierDisposition.WAIT)
    registrations = [wait.registered_at(step.event.recorded_at) for wait in plan.waits]
    if [(each.wait_id, each.digest) for each in registrations] != [(each.wait_id, each.digest) for each in data.waits]:
        raise step.breach("waits")
    for registration in registrations:
        if step.row(registration.digest).data != registration.canonical:
            raise step.breach("body")
    waits = tuple(OutstandingWait.of(each, position) for position, each in enumerate(registrations))
    return _advanced(step, data, plan, {"waits": waits})


def succeeded(step: Step, data: BarrierSucceeded) -> Consequence:
    """End the run with its output. Usage and artifacts are the evidence's and not computed again."""
    plan = _plan(step, BarrierDisposition.TERMINAL)
    body = step.body(OUTCOME, data.outcome_digest)
    if not isinstance(body, StoredSuccess) or body.output != plan.output:
        raise step.breach("outcome")
    check_settled(step)
    outcome = OutcomeFacts(
        kind=RunStatus.SUCCEEDED, digest=data.outcome_digest, completed_at=step.event.recorded_at, body=body
    )
    advanced = _advanced(step, data, plan, {"outcome": outcome})
    return Consequence(changes=advanced.changes, counts={"output_bytes": body.output.size})


def _plan(step: Step, disposition: BarrierDisposition) -> BarrierPlan:
    state, graph = step.state, step.graph
    if len(state.results) != len(step.checkpoint.ready_nodes):
        raise _breach(step, "result_set_mismatch")
    try:
        plan = state.barrier(graph)
    except BarrierRejectedError as error:
        if step.is_building:
            raise
        read = as_read(error, graph)
        if isinstance(read, CorruptDataError):
            raise _breach(step, read.reason) from error
        raise read from error
    if plan.disposition is not disposition:
        raise _breach(step, "disposition")
    return plan


def _breach(step: Step, reason: str) -> AgentRunsError:
    """Name the step whose barrier it is: a run that has gone on since does not show it."""
    error = step.breach(RULE, reason=reason)
    return evolve(error, superstep=step.state.superstep.value) if isinstance(error, CorruptDataError) else error


def _advanced(
    step: Step, data: BarrierContinued | BarrierWaiting | BarrierSucceeded, plan: BarrierPlan, changes: Changes
) -> Consequence:
    """Stand on the successor's checkpoint; what belonged to the superstep is over."""
    row = step.row(data.checkpoint_digest)
    if row.checkpoint_id is None or row.data != plan.state.data:
        raise _breach(step, "state")
    checkpoint = step.state.successor(plan, row.checkpoint_id)
    if checkpoint.digest != data.checkpoint_digest:
        raise _breach(step, "checkpoint")
    stood_on = CurrentCheckpoint(
        checkpoint_id=row.checkpoint_id,
        digest=checkpoint.digest,
        state_digest=plan.state_digest,
        state=plan.state,
        ready_nodes=plan.ready_nodes,
        sequence=step.event.sequence,
    )
    empty: Changes = {
        "superstep": checkpoint.superstep,
        "checkpoint": stood_on,
        "nodes": MappingProxyType({}),
        "results": MappingProxyType({}),
        "invocations": MappingProxyType({}),
        "settled": (),
    }
    counts = {"fan_out": len(plan.ready_nodes), "checkpoint_bytes": plan.state.size}
    return Consequence(changes={**empty, **changes}, counts=counts)
