"""Every shape of event data, and the one way to read it."""

from __future__ import annotations

import json
from typing import Final

from agentruns.domain.ledger.call_data import (
    CallAttemptStarted,
    CallCommitted,
    ModelErrorCommitted,
    ModelInvocationPrepared,
    ToolErrorCommitted,
    ToolInvocationPrepared,
)
from agentruns.domain.ledger.charges import TokenReserve
from agentruns.domain.ledger.codecs import invalid
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.run_data import (
    MAX_ATTEMPTS,
    MAX_WAITS,
    AgentAdmitted,
    BarrierContinued,
    BarrierSucceeded,
    BarrierWaiting,
    CancellationConfirmed,
    CancellationRequested,
    InterruptResolved,
    NodeAttemptFailed,
    NodeAttemptStarted,
    NodeAttemptSucceeded,
    RegisteredWait,
    RunFailed,
    TimerFired,
)
from agentruns.domain.ledger.shape import MAX_DATA_BYTES, EventData
from agentruns.errors import InvalidValueError

__all__ = [
    "MAX_ATTEMPTS",
    "MAX_DATA_BYTES",
    "MAX_WAITS",
    "SHAPES",
    "AgentAdmitted",
    "BarrierContinued",
    "BarrierSucceeded",
    "BarrierWaiting",
    "CallAttemptStarted",
    "CallCommitted",
    "CancellationConfirmed",
    "CancellationRequested",
    "EventData",
    "InterruptResolved",
    "ModelErrorCommitted",
    "ModelInvocationPrepared",
    "NodeAttemptFailed",
    "NodeAttemptStarted",
    "NodeAttemptSucceeded",
    "RegisteredWait",
    "RunFailed",
    "TimerFired",
    "TokenReserve",
    "ToolErrorCommitted",
    "ToolInvocationPrepared",
    "parse_data",
]

_ALL: Final[tuple[type[EventData], ...]] = (
    AgentAdmitted,
    NodeAttemptStarted,
    NodeAttemptSucceeded,
    NodeAttemptFailed,
    BarrierContinued,
    BarrierWaiting,
    BarrierSucceeded,
    RunFailed,
    InterruptResolved,
    TimerFired,
    CancellationRequested,
    CancellationConfirmed,
    ModelInvocationPrepared,
    ToolInvocationPrepared,
    CallAttemptStarted,
    CallCommitted,
    ModelErrorCommitted,
    ToolErrorCommitted,
)

#: The shape of each kind's data.
SHAPES: Final[dict[EventKind, type[EventData]]] = {kind: shape for shape in _ALL for kind in shape.kinds}


def parse_data(kind: EventKind, data: bytes) -> EventData:
    """Read the data of a kind; anything but the one canonical form is refused.

    Raises:
        InvalidValueError: ``too_large``, ``not_json``, ``not_canonical``, or a member that is missing, foreign or no
            value of its type.
    """
    if len(data) > MAX_DATA_BYTES:
        raise invalid("too_large")
    try:
        record = SHAPES[kind].of_tree(kind, json.loads(data))
    except InvalidValueError as error:
        reason = error.reason
    except TypeError:
        reason = "wrong_type"
    except (ValueError, RecursionError):
        reason = "not_json"
    else:
        if record.encode() == data:
            return record
        reason = "not_canonical"
    # The parser's error holds the whole document: ours is raised where it is out of reach.
    raise invalid(reason)
