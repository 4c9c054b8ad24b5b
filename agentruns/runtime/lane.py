"""Send what waits together: one statement, one commit, an outcome for each item.

There is no timer. A lone item goes at once; what gathers while the lane's connections are busy shares the next
statement.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Hashable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import define, field, frozen

from agentruns.errors import InvariantError
from agentruns.runtime.retry import Retry
from agentruns.runtime.telemetry.counts import retried, sent_alone, set_answered
from agentruns.store.transient import Transient, transient

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Item_contra = TypeVar("Item_contra", contravariant=True)
Answer_co = TypeVar("Answer_co", covariant=True)

MAXIMUM_ITEMS: Final = 256
MAXIMUM_BYTES: Final = 16 * 1024 * 1024
#: An item of this size travels alone, so that nobody waits for its bytes.
BULKY: Final = 1024 * 1024


@frozen(kw_only=True)
class Parcel(Generic[Item]):
    """What an item needs beside itself.

    Attributes:
        keys: a set never holds two items with a key in common, and no two sets under way do.
        size: bytes that the item adds to its statement.
    """

    item: Item
    keys: frozenset[Hashable]
    size: int = 0


class Held:
    """Stand for an item that the statement passed over because somebody else held its row."""


HELD: Final = Held()


def answered_or_held(answers: Sequence[Answer | None], *, skip_locked: bool) -> Sequence[Answer | Held | None]:
    """In a statement that passes held rows over, an item without an answer goes again alone."""
    return [HELD if answer is None and skip_locked else answer for answer in answers]


class Send(Protocol[Item_contra, Answer_co]):
    """Send items in one statement and answer each of them."""

    async def __call__(self, items: Sequence[Item_contra], *, is_alone: bool) -> Sequence[Answer_co | Held]:
        """Send; an item that is alone waits for its row, those of a larger set are passed over when it is held."""
        ...


@define(eq=False)
class _Waiting(Generic[Item, Answer]):
    parcel: Parcel[Item]
    answer: asyncio.Future[Answer]


@define(eq=False)
class Lane(Generic[Item, Answer]):
    """One kind of statement of one store, with a few connections of its own.

    Attributes:
        name: by which metrics tell lanes apart.
        takes_all: whether a set is all that waits, instead of a share for each free connection: where statements must
            not grow in number with what waits.
    """

    send: Send[Item, Answer]
    retry: Retry
    connections: int
    maximum_bytes: int = MAXIMUM_BYTES
    name: str = field(default="", kw_only=True)
    takes_all: bool = field(default=False, kw_only=True)
    _pending: list[_Waiting[Item, Answer]] = field(factory=list, init=False)
    _under_way: set[asyncio.Task[None]] = field(factory=set, init=False)
    _beside: set[asyncio.Task[None]] = field(factory=set, init=False)
    _busy_keys: set[Hashable] = field(factory=set, init=False)
    _is_dispatching: bool = field(default=False, init=False)

    async def ask(self, parcel: Parcel[Item]) -> Answer:
        """Send an item with whatever waits beside it, and wait for its own answer.

        A caller that is cancelled withdraws an item that has not gone out; one that has stands or falls by itself.
        """
        waiting: _Waiting[Item, Answer] = _Waiting(parcel, asyncio.get_running_loop().create_future())
        self._pending.append(waiting)
        self._dispatch_soon()
        try:
            return await waiting.answer
        finally:
            if waiting in self._pending:
                self._pending.remove(waiting)

    def _dispatch_soon(self) -> None:
        """Dispatch once all that is ready to ask has asked: what one turn of the event loop brings goes together."""
        if not self._is_dispatching:
            self._is_dispatching = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatching = False
        while self._pending and len(self._under_way) < self.connections:
            batch = self._next_set()
            if not batch:
                return
            for waiting in batch:
                self._busy_keys |= waiting.parcel.keys
            self._start(self._deliver(batch), among=self._under_way)

    def _start(self, work: Coroutine[Any, Any, None], *, among: set[asyncio.Task[None]]) -> None:
        """Hold a task strongly until it has ended, and then see who waits for its place."""

        def ended(task: asyncio.Task[None]) -> None:
            among.discard(task)
            self._dispatch_soon()

        task = asyncio.create_task(work, name="agentruns:lane")
        among.add(task)
        task.add_done_callback(ended)

    def _answered(self, waiting: _Waiting[Item, Answer], answer: Answer) -> None:
        self._busy_keys -= waiting.parcel.keys
        if not waiting.answer.done():
            waiting.answer.set_result(answer)

    def _failed(self, waiting: _Waiting[Item, Answer], error: BaseException) -> None:
        self._busy_keys -= waiting.parcel.keys
        if not waiting.answer.done():
            waiting.answer.set_exception(error)

    def _next_set(self) -> list[_Waiting[Item, Answer]]:
        """Take this connection's share of what waits, oldest first, each key once."""
        share = self._share()
        batch: list[_Waiting[Item, Answer]] = []
        keys, size = set(self._busy_keys), 0
        for waiting in self._pending:
            parcel = waiting.parcel
            is_alone = parcel.size > BULKY
            if waiting.answer.cancelled() or not keys.isdisjoint(parcel.keys):
                continue
            if batch and (is_alone or size + parcel.size > self.maximum_bytes):
                continue
            batch.append(waiting)
            keys |= parcel.keys
            size += parcel.size
            if is_alone or len(batch) == share:
                break
        taken = set(batch)
        self._pending = [waiting for waiting in self._pending if waiting not in taken]
        return batch

    def _share(self) -> int:
        if self.takes_all:
            return len(self._pending)
        return min(MAXIMUM_ITEMS, math.ceil(len(self._pending) / (self.connections - len(self._under_way))))

    async def _deliver(self, batch: Sequence[_Waiting[Item, Answer]]) -> None:
        """Send a set; a lost connection repeats it, any other error halves it until the culprit stands alone."""
        troubles: list[Transient] = []
        for attempt in self.retry.attempts_before_last():
            try:
                answers = await self.send([waiting.parcel.item for waiting in batch], is_alone=False)
            except Exception as error:  # noqa: BLE001 - each item must learn what became of its set
                trouble = transient(error)
                if trouble is None or not trouble.is_lost:
                    await self._divide(batch, trouble)
                    return
                troubles.append(trouble)
                retried(trouble)
                await self.retry.pause(attempt)
            else:
                set_answered(self.name, len(batch))
                self._settle(batch, answers)
                return
        # The last try of each item is its own, so that no neighbour's fate decides it.
        for waiting in batch:
            sent_alone(self.name, "error")
            self._start(self._deliver_alone(waiting, after=troubles), among=self._beside)

    async def _divide(self, batch: Sequence[_Waiting[Item, Answer]], trouble: Transient | None) -> None:
        if len(batch) == 1:
            # Nobody shared its try, so it counts among its own.
            after = () if trouble is None else (trouble,)
            sent_alone(self.name, "error")
            self._start(self._deliver_alone(batch[0], after=after), among=self._beside)
            return
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            await self._deliver(half)

    def _settle(self, batch: Sequence[_Waiting[Item, Answer]], answers: Sequence[Answer | Held]) -> None:
        for waiting, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Held):
                # Beside the lane: a row that is held delays nobody but who waits for it.
                sent_alone(self.name, "held")
                self._start(self._deliver_alone(waiting), among=self._beside)
            else:
                self._answered(waiting, answer)

    async def _deliver_alone(self, waiting: _Waiting[Item, Answer], *, after: Sequence[Transient] = ()) -> None:
        try:
            answer = await self.retry.run(lambda: self._send_one(waiting.parcel.item), after=after)
        except Exception as error:  # noqa: BLE001 - the error belongs to the caller of this item
            self._failed(waiting, error)
        else:
            self._answered(waiting, answer)

    async def _send_one(self, item: Item) -> Answer:
        (answer,) = await self.send([item], is_alone=True)
        if isinstance(answer, Held):
            raise InvariantError(reason="held_alone")
        return answer
