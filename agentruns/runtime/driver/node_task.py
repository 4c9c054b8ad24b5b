"""Execute one started node, and say how it ended."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final, TypeAlias

from attrs import frozen

from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.graph.returns import TakenReturn, take_return
from agentruns.domain.ledger.state import RunState
from agentruns.domain.scalars import NodeId
from agentruns.errors import DeploymentError, InvalidValueError
from agentruns.runtime.context import GraphNodeContext, ReadWaits
from agentruns.runtime.driver.threads import NodeThreads
from agentruns.runtime.node_life import NodeLife
from agentruns.runtime.telemetry.drives import observed_node
from agentruns.runtime.telemetry.observation import UNOBSERVED


@frozen
class Returned:
    """The node returned a value; its bytes were taken at once, so what happens to it later changes nothing."""

    word: ClassVar[str] = "returned"

    value: TakenReturn


@frozen
class Refused:
    """The node returned what no node may return; the reason is one of a closed set."""

    word: ClassVar[str] = "refused"

    reason: str


@frozen
class Raised:
    """The node raised."""

    word: ClassVar[str] = "raised"

    error: BaseException


@frozen
class TimedOut:
    """The node did not end before its deadline."""

    word: ClassVar[str] = "timed_out"


#: How a node ended.
NodeEnd: TypeAlias = Returned | Refused | Raised | TimedOut


#: Held strongly until they end: a task without other references may be collected in flight.
_ABANDONED: Final[set[asyncio.Future[Any]]] = set()


class NodeTask:
    """Hold the task of a node strongly until it has ended.

    Attributes:
        graph: that the node belongs to.
        context: what the node sees.
        life: its time, and the wish that it end.
        end: how it ended, once it has; never, where something else ends the drive.
    """

    def __init__(
        self,
        graph: ExecutableGraph,
        state: RunState,
        node_id: NodeId,
        *,
        seconds: float,
        read_waits: ReadWaits,
        threads: NodeThreads,
    ) -> None:
        self.life = NodeLife(seconds)
        self.context = context = GraphNodeContext.of(state, node_id, life=self.life, read_waits=read_waits)
        self.end: NodeEnd | None = None
        #: Of our own doing. A count of the task's cancellations would not say whose they were.
        self._is_aborted = False
        self._fatal: BaseException | None = None
        self.graph = graph
        self._observed = UNOBSERVED
        self._threads = threads
        self._thread: asyncio.Future[object] | None = None
        name = f"agentruns:{context.run_id.text}:{context.superstep.value}:{context.node_id.text}"
        self.task = asyncio.create_task(self._run(), name=name)

    async def _run(self) -> None:
        with observed_node(self.context, self.graph) as self._observed:
            try:
                self._settle(_taken(await self._execute()))
            except asyncio.CancelledError as error:
                if self._is_aborted:
                    raise
                # The node cancelled itself, or raised it: a failed attempt, and no cancellation of anything.
                self._settle(Raised(error))
            except Exception as error:  # noqa: BLE001 - whatever user code raises is a failed attempt
                self._settle(Raised(error))
            except BaseException as error:  # noqa: BLE001 - it goes on in the drive
                # From a task of its own an exit would leave the event loop at once, and every lease behind.
                self.life.revoke()
                self._fatal = error

    async def _execute(self) -> object:
        node_id = self.context.node_id
        if node_id not in self.graph.threaded:
            return await self._call()
        try:
            self._thread = await self._threads.start(self._call)
        except DeploymentError as error:
            self.life.fault = error
            raise
        # Not shielded: what comes of a call that was given up is nobody's, and no log's.
        await asyncio.wait([self._thread])
        return self._thread.result()

    def _call(self) -> Any:
        """Call the node's function, from where its own time counts."""
        self.life.begin()
        return self.graph.executors[self.context.node_id].execute(self.context)

    @property
    def returned_bytes(self) -> int:
        """Size of what the node returned."""
        if not isinstance(self.end, Returned):
            return 0
        value = self.end.value
        return sum(each.size for each in (value.update, value.output) if each is not None)

    def time_out(self) -> None:
        """Fix the end of a node whose deadline has passed; what it does later changes nothing."""
        self._settle(TimedOut())

    def check(self) -> None:
        """Raise what ends the drive: no completion is written for it, whatever the node made of it."""
        if self.end is not None:
            return
        if self.life.fault is not None:
            raise self.life.fault
        if self._fatal is not None:
            raise self._fatal

    def _settle(self, end: NodeEnd) -> None:
        """Take the first end that counts; over a fault of the library's own, none does."""
        self.life.revoke()
        if self.end is None and self.life.fault is None:
            self.end = self._observed.ended_with(end)

    async def abort(self, *, wait: float) -> bool:
        """Signal and cancel the node, and wait for it a little.

        Returns:
            Whether it ended; otherwise it is abandoned, and whatever it returns is dropped.
        """
        self.life.signal()
        self.life.revoke()
        self._is_aborted = True
        self._observed.ended_with(None)
        self.task.cancel()
        ending: set[asyncio.Future[Any]] = {self.task}
        if self._thread is not None:
            ending.add(self._thread)
        _, running = await asyncio.wait(ending, timeout=wait)
        for each in running:
            self._abandon(each)
        return not running

    def _abandon(self, ending: asyncio.Future[Any]) -> None:
        _ABANDONED.add(ending)
        ending.add_done_callback(_ABANDONED.discard)
        if ending is self._thread:
            self._threads.abandon(ending)


def _taken(value: object) -> Returned | Refused:
    try:
        return Returned(take_return(value))
    except InvalidValueError as error:
        return Refused(error.reason)
