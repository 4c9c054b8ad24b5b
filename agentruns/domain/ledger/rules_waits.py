"""The rules of what settles a wait."""

from __future__ import annotations

from agentruns.domain.ids import WaitId
from agentruns.domain.ledger.bodies import RESOLUTION
from agentruns.domain.ledger.data import InterruptResolved, TimerFired
from agentruns.domain.ledger.records import OutstandingWait, SettledWait, WaitSettlement
from agentruns.domain.ledger.rules_ends import in_order
from agentruns.domain.ledger.step import Consequence, Step
from agentruns.domain.waits import WaitClass, WaitResolution
from agentruns.errors import AgentRunsError, NotFoundError, ResolverNotPermittedError, WaitAlreadySettledError

RULE = "waits"


def resolved(step: Step, data: InterruptResolved) -> Consequence:
    """Settle an interrupt in time, by somebody who may."""
    wait = _outstanding(step, data.wait_id, WaitClass.INTERRUPT)
    resolution = step.body(RESOLUTION, data.resolution_digest)
    if wait.is_expired(step.event.recorded_at):
        raise step.breach(RULE, refusal=_already(step, data.wait_id, "expired"))
    if not _may_resolve(wait, resolution):
        state = step.state
        refusal = ResolverNotPermittedError(tenant_id=state.tenant_id, run_id=state.run_id, wait_id=data.wait_id)
        raise step.breach(RULE, refusal=refusal)
    settled = SettledWait(
        wait_id=data.wait_id,
        how=WaitSettlement.RESOLVED,
        position=wait.position,
        sequence=step.event.sequence,
        resolution_digest=data.resolution_digest,
    )
    return _settling(step, settled)


def fired(step: Step, data: TimerFired) -> Consequence:
    """Settle a timer that is due."""
    wait = _outstanding(step, data.wait_id, WaitClass.TIMER)
    if wait.due_at is None or step.event.recorded_at < wait.due_at:
        raise step.breach(RULE, reason="early")
    settled = SettledWait(
        wait_id=data.wait_id, how=WaitSettlement.FIRED, position=wait.position, sequence=step.event.sequence
    )
    return _settling(step, settled)


def _outstanding(step: Step, wait_id: WaitId, wait_class: WaitClass) -> OutstandingWait:
    wait = next((each for each in step.state.waits if each.wait_id == wait_id), None)
    if wait is None or wait.wait_class is not wait_class:
        raise step.breach(RULE, refusal=_missing(step, wait_id))
    return wait


def _missing(step: Step, wait_id: WaitId) -> AgentRunsError:
    state = step.state
    settled = next((each for each in state.settled if each.wait_id == wait_id), None)
    if settled is not None:
        return _already(step, wait_id, settled.how.value)
    return NotFoundError(kind="wait", tenant_id=state.tenant_id, id=wait_id)


def _already(step: Step, wait_id: WaitId, reason: str) -> WaitAlreadySettledError:
    state = step.state
    return WaitAlreadySettledError(reason=reason, tenant_id=state.tenant_id, run_id=state.run_id, wait_id=wait_id)


def _may_resolve(wait: OutstandingWait, resolution: WaitResolution) -> bool:
    resolver = resolution.resolver
    return (wait.principal is None or resolver.principal == wait.principal) and wait.scopes <= resolver.scopes


def _settling(step: Step, settled: SettledWait) -> Consequence:
    state = step.state
    return Consequence(
        changes={
            "waits": tuple(wait for wait in state.waits if wait.wait_id != settled.wait_id),
            "settled": in_order(*state.settled, settled),
        }
    )
