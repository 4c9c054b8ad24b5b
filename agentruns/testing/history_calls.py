"""Moves of models and tools in a random history. The bodies of calls are made up: the fold reads none of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from agentruns.domain.digests import Digest
from agentruns.domain.graph.bindings import InvocationKind, InvocationStatus
from agentruns.domain.ids import AttemptId, EventId, InvocationId
from agentruns.domain.ledger.charges import TokenReserve
from agentruns.domain.ledger.commit import CommitBuilder
from agentruns.domain.ledger.data import (
    CallAttemptStarted,
    CallCommitted,
    EventData,
    ModelErrorCommitted,
    ModelInvocationPrepared,
    ToolErrorCommitted,
    ToolInvocationPrepared,
)
from agentruns.domain.ledger.drafts import DraftedCommit
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.records import InvocationFacts
from agentruns.domain.numbers import InvocationNumber, TokenCount
from agentruns.domain.scalars import NodeId
from agentruns.domain.status import RunStatus
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.tool import ToolRisk
from agentruns.domain.usage import BudgetUsage

if TYPE_CHECKING:
    from agentruns.testing.histories import History

Move: TypeAlias = Callable[[], DraftedCommit]


def call_moves(history: History) -> list[Move]:
    """List what may happen to the calls of this superstep."""
    state = history.state
    executing = [each.node_id for each in state.nodes.values() if each.is_executing_under(int(history.epoch))]
    possible = [move for call in state.invocations.values() for move in _moves_of(history, call, executing)]
    is_alone = history.with_calls and state.status is RunStatus.ACTIVE and len(executing) == 1
    if is_alone and len(state.invocations) < 3:  # noqa: PLR2004  # a few are enough
        possible.append(partial(_prepare, history, executing[0]))
    return possible


def _moves_of(history: History, call: InvocationFacts, executing: list[NodeId]) -> list[Move]:
    if call.status is InvocationStatus.EXECUTING:
        return [partial(_commit, history, call), partial(_fail, history, call)]
    if call.status is InvocationStatus.UNKNOWN:
        return [partial(_commit, history, call, reconciled=True), partial(_fail, history, call, reconciled=True)]
    is_owned = history.state.status is RunStatus.ACTIVE and call.node_id in executing
    if is_owned and (call.status is InvocationStatus.PREPARED or _may_repeat(history, call)):
        return [partial(_start, history, call)]
    return []


def _may_repeat(history: History, call: InvocationFacts) -> bool:
    if call.status is not InvocationStatus.FAILED or call.retry_not_before is None:
        return False
    is_safe = call.risk is None or (call.effect is not None and call.effect.permits_another_start(call.risk))
    return is_safe and call.retry_not_before <= history.now


def _prepare(history: History, node_id: NodeId) -> DraftedCommit:
    superstep, invocation_id, number = history.state.superstep, history.mint(InvocationId), InvocationNumber(0)
    if history.random.random() < 0.5:  # noqa: PLR2004  # as many models as tools
        data: EventData = ModelInvocationPrepared(
            superstep=superstep,
            node_id=node_id,
            invocation_id=invocation_id,
            number=number,
            body_digest=_digest(history),
        )
    else:
        data = ToolInvocationPrepared(
            superstep=superstep,
            node_id=node_id,
            invocation_id=invocation_id,
            number=number,
            body_digest=_digest(history),
            risk=history.random.choice(list(ToolRisk)),
        )
    return _append(history, data)


def _start(history: History, call: InvocationFacts) -> DraftedCommit:
    is_model = call.kind is InvocationKind.MODEL
    data = CallAttemptStarted(
        kind=EventKind.MODEL_ATTEMPT_STARTED if is_model else EventKind.TOOL_ATTEMPT_STARTED,
        invocation_id=call.invocation_id,
        number=call.number.next(),
        attempt_id=history.mint(AttemptId),
    )
    return _append(history, data)


def _commit(history: History, call: InvocationFacts, *, reconciled: bool = False) -> DraftedCommit:
    kind = EventKind.TOOL_RESULT_RECONCILED if reconciled else EventKind.TOOL_RESULT_COMMITTED
    data = CallCommitted(
        kind=EventKind.MODEL_RESPONSE_COMMITTED if call.kind is InvocationKind.MODEL else kind,
        invocation_id=call.invocation_id,
        number=call.number.next(),
        attempt_id=call.attempt_ids[-1],
        body_digest=_digest(history),
        charged=_charge(history),
    )
    return _append(history, data, by_worker=not reconciled)


def _fail(history: History, call: InvocationFacts, *, reconciled: bool = False) -> DraftedCommit:
    if call.risk is None:
        model = ModelErrorCommitted(
            invocation_id=call.invocation_id,
            number=call.number.next(),
            attempt_id=call.attempt_ids[-1],
            body_digest=_digest(history),
            charged=_charge(history),
            retry_not_before=_gate(history),
            reserved=history.random.choice([None, TokenReserve(input_tokens=TokenCount(5))]),
        )
        return _append(history, model, by_worker=history.random.random() < 0.5)  # noqa: PLR2004  # or an operator
    effect = history.random.choice([each for each in ToolEffect if each.is_legal(call.risk)])
    data = ToolErrorCommitted(
        kind=EventKind.TOOL_ERROR_RECONCILED if reconciled else EventKind.TOOL_ERROR_COMMITTED,
        invocation_id=call.invocation_id,
        number=call.number.next(),
        attempt_id=call.attempt_ids[-1],
        body_digest=_digest(history),
        charged=BudgetUsage.zero() if effect is ToolEffect.UNKNOWN else _charge(history),
        effect=effect,
        retry_not_before=None if effect is ToolEffect.UNKNOWN else _gate(history),
    )
    return _append(history, data, by_worker=not reconciled)


def _append(history: History, data: EventData, *, by_worker: bool = True) -> DraftedCommit:
    epoch = int(history.epoch) if by_worker else 0
    builder = CommitBuilder(before=history.state, graph=history.graph, epoch=epoch, stamp=history.now)
    builder.append(history.mint(EventId), data)
    return builder.finish()


def _digest(history: History) -> Digest:
    return Digest(history.random.randbytes(32))


def _charge(history: History) -> BudgetUsage:
    cost = history.random.randrange(3)
    return BudgetUsage.of(
        tool_calls=1, input_tokens=cost, known_costs={"EUR": cost} if cost else {}, unpriced_cost_events=cost % 2
    )


def _gate(history: History) -> Timestamp | None:
    return history.random.choice([None, history.now.plus_micros(history.random.randrange(2_000_000))])
