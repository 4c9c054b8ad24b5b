"""What a node sees of its run while it executes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cached_property
from typing import Any, Self, TypeAlias

from attrs import frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.digests import Digest
from agentruns.domain.graph.activation import NodeActivation
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import Superstep
from agentruns.domain.scalars import NodeId, TenantId
from agentruns.errors import InvariantError, LeaseLostError, UnitOfWorkError
from agentruns.runtime.node_life import NodeLife
from agentruns.runtime.settled_waits import SettledRunWait

#: Reads the settled waits of the checkpoint, verified.
ReadWaits: TypeAlias = Callable[[], Awaitable[tuple[SettledRunWait, ...]]]


@frozen(kw_only=True, eq=False, repr=False, slots=False)
class GraphNodeContext:
    """Give a node its run's verified state and the identity of its committed start; nothing of it can be assigned.

    Attributes:
        tenant_id: of the run.
        run_id: of the run.
        node_id: of the node.
        superstep: the step of the run that the node belongs to.
        checkpoint_digest: of the checkpoint that the state is of.
        attempt_id: of the committed start.
        attempt: its number, 1..64.
    """

    tenant_id: TenantId
    run_id: RunId
    node_id: NodeId
    superstep: Superstep
    checkpoint_digest: Digest
    attempt_id: AttemptId
    attempt: int
    _state: BoundedJson
    _life: NodeLife
    _read_waits: ReadWaits
    _loop: asyncio.AbstractEventLoop

    @classmethod
    def of(cls, state: RunState, node_id: NodeId, *, life: NodeLife, read_waits: ReadWaits) -> Self:
        """Make the context of a node whose start is committed, on the loop of its drive."""
        checkpoint = state.checkpoint
        if checkpoint is None:
            raise InvariantError(reason="no_checkpoint")
        started = state.nodes[node_id]
        return cls(
            tenant_id=state.tenant_id,
            run_id=state.run_id,
            node_id=node_id,
            superstep=state.superstep,
            checkpoint_digest=checkpoint.digest,
            attempt_id=started.attempt_id,
            attempt=started.attempt,
            state=checkpoint.state,
            life=life,
            read_waits=read_waits,
            loop=asyncio.get_running_loop(),
        )

    @cached_property
    def effect_key(self) -> str:
        """64 hexadecimal characters, equal for every attempt of this node in this step.

        Give it to external systems that recognise a repetition.
        """
        activation = NodeActivation(
            tenant_id=self.tenant_id,
            run_id=self.run_id,
            superstep=self.superstep,
            checkpoint_digest=self.checkpoint_digest,
            node_id=self.node_id,
        )
        return activation.effect_key.hex

    @property
    def state(self) -> Any:
        """A fresh copy of the run's state; changing it changes nothing."""
        return self._state.value

    @property
    def cancelled(self) -> bool:
        """Whether the node is asked to end: by a cancellation, its deadline or a shutdown. Never unset."""
        return self._life.is_cancelled

    async def wait_cancelled(self) -> None:
        """Return once the node is asked to end."""
        await self._life.wait_cancelled()

    async def resolutions(self) -> tuple[SettledRunWait, ...]:
        """Read how the waits were settled that led into this step, in the order in which they were registered.

        It is the same for every attempt of the node. The driver never puts an answer into the state by itself.

        An error of the database or of the record is no failure of the node: it ends the drive whatever the node does
        with it, and the attempt stays unfinished.

        Raises:
            LeaseLostError: ``context_closed``; the node has ended as far as its run is concerned.
            CorruptDataError: a stored answer does not verify; the run is isolated.
            StoreUnavailableError: the database is away; the run is given back.
        """
        if self._life.is_revoked:
            raise LeaseLostError(tenant_id=self.tenant_id, run_id=self.run_id, reason="context_closed")
        try:
            return await self._read_waits()
        except Exception as error:
            self._life.fault = error
            raise

    def wait_for_resolutions(self) -> tuple[SettledRunWait, ...]:
        """Read the same from a plain function, which runs in a thread; it blocks that thread alone.

        Raises:
            UnitOfWorkError: ``on_event_loop``; an ``async def`` awaits :meth:`resolutions` instead.
        """
        with suppress(RuntimeError):  # no loop runs in this thread, as it should be
            if asyncio.get_running_loop() is self._loop:
                raise UnitOfWorkError(reason="on_event_loop")
        return asyncio.run_coroutine_threadsafe(self.resolutions(), self._loop).result()

    @property
    def time_left(self) -> float:
        """Seconds until the node's deadline, on the process's monotonic clock; never negative.

        They count from when the node's function was called.
        """
        return self._life.time_left
