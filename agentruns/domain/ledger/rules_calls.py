"""The rules of model and tool calls. Their bodies are not read: an event carries what the rules need of its body."""

from __future__ import annotations

from typing import Final, TypeAlias

from attrs import evolve

from agentruns.domain.graph.bindings import InvocationKind, InvocationStatus
from agentruns.domain.ids import AttemptId, InvocationId
from agentruns.domain.ledger.charges import TokenReserve
from agentruns.domain.ledger.data import (
    CallAttemptStarted,
    CallCommitted,
    ModelErrorCommitted,
    ModelInvocationPrepared,
    ToolErrorCommitted,
    ToolInvocationPrepared,
)
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.records import InvocationFacts
from agentruns.domain.ledger.rules_nodes import with_entry
from agentruns.domain.ledger.step import Consequence, Step
from agentruns.domain.numbers import InvocationNumber
from agentruns.domain.usage import BudgetUsage
from agentruns.errors import (
    AgentRunsError,
    IdConflictError,
    InvalidValueError,
    NotYetAvailableError,
    RefusedError,
    RetryNotAuthorizedError,
)

RULE = "invocation"

_FIRST: Final = InvocationNumber(0)
_RECONCILING: Final = frozenset({EventKind.TOOL_RESULT_RECONCILED, EventKind.TOOL_ERROR_RECONCILED})
_STARTABLE: Final = frozenset({InvocationStatus.PREPARED, InvocationStatus.FAILED})

_Prepared: TypeAlias = ModelInvocationPrepared | ToolInvocationPrepared
_Ended: TypeAlias = CallCommitted | ModelErrorCommitted | ToolErrorCommitted


def prepared(step: Step, data: _Prepared) -> Consequence:
    """Record a call of the one node that is executing under this fence."""
    state, event = step.state, step.event
    executing = [each.node_id for each in state.nodes.values() if each.is_executing_under(event.epoch)]
    if data.number != _FIRST or data.invocation_id in state.invocations or executing != [data.node_id]:
        raise _transition(step)
    call = InvocationFacts(
        invocation_id=data.invocation_id,
        kind=InvocationKind.TOOL if isinstance(data, ToolInvocationPrepared) else InvocationKind.MODEL,
        node_id=data.node_id,
        intent_digest=data.body_digest,
        risk=data.risk if isinstance(data, ToolInvocationPrepared) else None,
        number=data.number,
        status=InvocationStatus.PREPARED,
        epoch=event.epoch,
        changed_at=event.recorded_at,
    )
    return _with_call(step, call)


def started(step: Step, data: CallAttemptStarted) -> Consequence:
    """Start an exchange, for the first time or again."""
    call, event = _call(step, data.invocation_id, data.number), step.event
    owner = step.state.nodes.get(call.node_id)
    if call.status not in _STARTABLE or owner is None or not owner.is_executing_under(event.epoch):
        raise _transition(step)
    if call.status is InvocationStatus.FAILED:
        _check_repeatable(step, call)
    if data.attempt_id in call.attempt_ids:
        state = step.state
        conflict = IdConflictError(kind="attempt", id=data.attempt_id, tenant_id=state.tenant_id, run_id=state.run_id)
        raise step.breach(RULE, refusal=conflict)
    return _with_call(
        step,
        evolve(
            call,
            number=data.number,
            status=InvocationStatus.EXECUTING,
            attempt_ids=(*call.attempt_ids, data.attempt_id),
            epoch=event.epoch,
            body_digest=None,
            effect=None,
            retry_not_before=None,
            changed_at=event.recorded_at,
        ),
    )


def committed(step: Step, data: CallCommitted) -> Consequence:
    """End an exchange by what it brought."""
    call = _ending(step, data)
    ended = evolve(
        call,
        number=data.number,
        status=InvocationStatus.COMMITTED,
        body_digest=data.body_digest,
        effect=None,
        retry_not_before=None,
        changed_at=step.event.recorded_at,
    )
    return _with_call(step, ended, spent=data.charged)


def model_failed(step: Step, data: ModelErrorCommitted) -> Consequence:
    """End an exchange with a model by an error."""
    ended = evolve(
        _ending(step, data),
        number=data.number,
        status=InvocationStatus.FAILED,
        body_digest=data.body_digest,
        retry_not_before=data.retry_not_before,
        changed_at=step.event.recorded_at,
    )
    return _with_call(step, ended, spent=data.charged, reserved=data.reserved)


def tool_failed(step: Step, data: ToolErrorCommitted) -> Consequence:
    """End an exchange with a tool by an error, or say that nobody knows what it did."""
    call = _ending(step, data)
    if call.risk is None or not data.effect.is_legal(call.risk):
        raise _transition(step)
    is_unknown = data.effect is ToolEffect.UNKNOWN
    ended = evolve(
        call,
        number=data.number,
        status=InvocationStatus.UNKNOWN if is_unknown else InvocationStatus.FAILED,
        body_digest=data.body_digest,
        effect=data.effect,
        retry_not_before=data.retry_not_before,
        changed_at=step.event.recorded_at,
    )
    return _with_call(step, ended, spent=data.charged)


def _call(step: Step, invocation_id: InvocationId, number: InvocationNumber) -> InvocationFacts:
    """Find the call that an event goes on with, of the kind that the event is about."""
    call = step.state.invocations.get(invocation_id)
    if call is None or number.value != call.number.value + 1 or not step.kind.value.startswith(call.kind.value):
        raise _transition(step)
    return call


def _ending(step: Step, data: _Ended) -> InvocationFacts:
    call = _call(step, data.invocation_id, data.number)
    before = InvocationStatus.UNKNOWN if step.kind in _RECONCILING else InvocationStatus.EXECUTING
    if call.status is not before or not _is_last(call, data.attempt_id):
        raise _transition(step)
    return call


def _is_last(call: InvocationFacts, attempt_id: AttemptId) -> bool:
    return call.attempt_ids[-1:] == (attempt_id,)


def _check_repeatable(step: Step, call: InvocationFacts) -> None:
    """Refuse to repeat what the last error does not advise, what is unsafe, or what comes too early."""
    state = step.state
    refusal: AgentRunsError | None = None
    if call.retry_not_before is None:
        refusal = RetryNotAuthorizedError(reason="not_advised", tenant_id=state.tenant_id, run_id=state.run_id)
    elif call.risk is not None and (call.effect is None or not call.effect.permits_another_start(call.risk)):
        refusal = RetryNotAuthorizedError(reason="unsafe_effect", tenant_id=state.tenant_id, run_id=state.run_id)
    elif step.event.recorded_at < call.retry_not_before:
        refusal = NotYetAvailableError(
            reason="retry_delay",
            tenant_id=state.tenant_id,
            run_id=state.run_id,
            not_before=call.retry_not_before,
        )
    if refusal is not None:
        raise step.breach(RULE, refusal=refusal)


def _with_call(
    step: Step, call: InvocationFacts, *, spent: BudgetUsage | None = None, reserved: TokenReserve | None = None
) -> Consequence:
    state = step.state
    invocations = with_entry(state.invocations, call.invocation_id, call)
    if reserved is None:
        return Consequence(changes={"invocations": invocations}, spent=spent)
    try:
        total = state.reserved.plus(reserved)
    except InvalidValueError as error:
        raise step.breach("usage", reason=error.reason) from error
    return Consequence(changes={"invocations": invocations, "reserved": total}, spent=spent)


def _transition(step: Step) -> AgentRunsError:
    state = step.state
    return step.breach(RULE, refusal=RefusedError(reason="transition", tenant_id=state.tenant_id, run_id=state.run_id))
