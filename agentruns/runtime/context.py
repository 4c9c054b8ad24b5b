"""What a node sees of its run while it executes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Final

from agentruns.domain.digests import Digest
from agentruns.domain.graph.activation import NodeActivation
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId, TenantId
from agentruns.errors import InvariantError

_DIGEST_PREFIX: Final = "sha256:"


class GraphNodeContext:
    """Give a node its run's verified state and the identity of its committed start.

    Attributes:
        tenant_id: of the run.
        run_id: of the run.
        node_id: of the node.
        superstep: the step of the run that the node belongs to.
        checkpoint_digest: of the checkpoint that the state is of.
        attempt_id: of the committed start.
        attempt: its number, 1..64.
        effect_key: 64 hexadecimal characters, equal for every attempt of this node in this step: give it to external
            systems that recognise a repetition.
    """

    def __init__(self, state: RunState, node_id: NodeId, *, seconds: float) -> None:
        checkpoint = state.checkpoint
        if checkpoint is None:
            raise InvariantError(reason="no_checkpoint")
        activation = NodeActivation.for_ready_node(state, node_id)
        started = state.nodes[node_id]
        self.tenant_id: TenantId = state.tenant_id
        self.run_id: RunId = state.run_id
        self.node_id = node_id
        self.superstep: Superstep = activation.superstep
        self.checkpoint_digest: Digest = activation.checkpoint_digest
        self.attempt_id: AttemptId = started.attempt_id
        self.attempt: int = started.attempt
        self.effect_key: str = str(activation.effect_key).removeprefix(_DIGEST_PREFIX)
        self._state = checkpoint.state
        self._deadline = time.monotonic() + seconds
        self._loop = asyncio.get_running_loop()
        self._signal = threading.Event()
        self._cancelled = asyncio.Event()

    @property
    def state(self) -> Any:
        """A fresh copy of the run's state; changing it changes nothing."""
        return self._state.value

    @property
    def cancelled(self) -> bool:
        """Whether the node is asked to end: by a cancellation, its deadline or a shutdown. Never unset."""
        return self._signal.is_set()

    async def wait_cancelled(self) -> None:
        """Return once the node is asked to end."""
        await self._cancelled.wait()

    @property
    def time_left(self) -> float:
        """Seconds until the node's deadline, on the process's monotonic clock; never negative."""
        return max(0.0, self._deadline - time.monotonic())

    def signal(self) -> None:
        """Ask the node to end."""
        self._signal.set()
        self._loop.call_soon_threadsafe(self._cancelled.set)
