"""The data of the events of model and tool calls."""

from __future__ import annotations

from attrs import field, frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import AttemptId, InvocationId
from agentruns.domain.ledger.charges import CHARGED, RESERVED, TokenReserve
from agentruns.domain.ledger.codecs import (
    ATTEMPT_ID,
    DIGEST,
    EFFECT,
    INSTANT,
    INVOCATION_ID,
    INVOCATION_NUMBER,
    NODE,
    RISK,
    STEP,
)
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.shape import EventData
from agentruns.domain.numbers import InvocationNumber, Superstep
from agentruns.domain.scalars import NodeId
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.tool import ToolRisk
from agentruns.domain.usage import BudgetUsage


@frozen(kw_only=True)
class ModelInvocationPrepared(EventData):
    """Record what a model will be asked, before it is asked. ``number`` counts the events of the call, from 0."""

    kinds = (EventKind.MODEL_INVOCATION_PREPARED,)
    kind = EventKind.MODEL_INVOCATION_PREPARED

    superstep: Superstep = field(metadata=STEP)
    node_id: NodeId = field(metadata=NODE)
    invocation_id: InvocationId = field(metadata=INVOCATION_ID)
    number: InvocationNumber = field(metadata=INVOCATION_NUMBER)
    body_digest: Digest = field(metadata=DIGEST)


@frozen(kw_only=True)
class ToolInvocationPrepared(EventData):
    """Record what a tool will be asked, and the risk of asking."""

    kinds = (EventKind.TOOL_INVOCATION_PREPARED,)
    kind = EventKind.TOOL_INVOCATION_PREPARED

    superstep: Superstep = field(metadata=STEP)
    node_id: NodeId = field(metadata=NODE)
    invocation_id: InvocationId = field(metadata=INVOCATION_ID)
    number: InvocationNumber = field(metadata=INVOCATION_NUMBER)
    body_digest: Digest = field(metadata=DIGEST)
    risk: ToolRisk = field(metadata=RISK)


@frozen(kw_only=True)
class CallAttemptStarted(EventData):
    """Start an exchange with a provider."""

    kinds = (EventKind.MODEL_ATTEMPT_STARTED, EventKind.TOOL_ATTEMPT_STARTED)

    kind: EventKind
    invocation_id: InvocationId = field(metadata=INVOCATION_ID)
    number: InvocationNumber = field(metadata=INVOCATION_NUMBER)
    attempt_id: AttemptId = field(metadata=ATTEMPT_ID)


@frozen(kw_only=True)
class CallCommitted(EventData):
    """End an exchange with a response or a result.

    Attributes:
        charged: what the attempt cost; zero is nothing.
    """

    kinds = (
        EventKind.MODEL_RESPONSE_COMMITTED,
        EventKind.TOOL_RESULT_COMMITTED,
        EventKind.TOOL_RESULT_RECONCILED,
    )

    kind: EventKind
    invocation_id: InvocationId = field(metadata=INVOCATION_ID)
    number: InvocationNumber = field(metadata=INVOCATION_NUMBER)
    attempt_id: AttemptId = field(metadata=ATTEMPT_ID)
    body_digest: Digest = field(metadata=DIGEST)
    charged: BudgetUsage = field(metadata=CHARGED)


@frozen(kw_only=True)
class ModelErrorCommitted(EventData):
    """End an exchange with a model by an error.

    Attributes:
        retry_not_before: there exactly when the error advises a retry.
        reserved: what is held back where usage is unknown.
    """

    kinds = (EventKind.MODEL_ERROR_COMMITTED,)
    kind = EventKind.MODEL_ERROR_COMMITTED

    invocation_id: InvocationId = field(metadata=INVOCATION_ID)
    number: InvocationNumber = field(metadata=INVOCATION_NUMBER)
    attempt_id: AttemptId = field(metadata=ATTEMPT_ID)
    body_digest: Digest = field(metadata=DIGEST)
    charged: BudgetUsage = field(metadata=CHARGED)
    retry_not_before: Timestamp | None = field(default=None, metadata=INSTANT)
    reserved: TokenReserve | None = field(default=None, metadata=RESERVED)


@frozen(kw_only=True)
class ToolErrorCommitted(EventData):
    """End an exchange with a tool by an error, as the exchange or a later statement says.

    Attributes:
        effect: what the attempt did outside.
        retry_not_before: there exactly when the error advises a retry.
    """

    kinds = (EventKind.TOOL_ERROR_COMMITTED, EventKind.TOOL_ERROR_RECONCILED)

    kind: EventKind
    invocation_id: InvocationId = field(metadata=INVOCATION_ID)
    number: InvocationNumber = field(metadata=INVOCATION_NUMBER)
    attempt_id: AttemptId = field(metadata=ATTEMPT_ID)
    body_digest: Digest = field(metadata=DIGEST)
    charged: BudgetUsage = field(metadata=CHARGED)
    effect: ToolEffect = field(metadata=EFFECT)
    retry_not_before: Timestamp | None = field(default=None, metadata=INSTANT)
