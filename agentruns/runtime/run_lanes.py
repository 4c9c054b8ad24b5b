"""Send what waits together: inserts, probes and reads of a store, each kind for itself."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from agentruns.domain.run_ends import RunEnds
from agentruns.runtime.lane import HELD, Held, Lane, Parcel
from agentruns.runtime.steps import attach, insert, probe
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.submission import Step
from agentruns.store.admissions import NewAdmission
from agentruns.store.ends import MAXIMUM_BODY_BYTES, Ends, RunLookup
from agentruns.store.keys import ProbeAnswer, SubmissionProbe
from agentruns.store.mapping import instant
from agentruns.store.unit_of_work import UnitOfWork

T = TypeVar("T")


class RunLanes:
    """Take the steps of many submissions and loads of one store at a time, each on a connection of ours."""

    def __init__(self, store: AgentRunStore) -> None:
        self._store = store
        self._inserts: Lane[NewAdmission, bool] = store.lane(self._insert, maximum_bytes=MAXIMUM_BODY_BYTES)
        self._probes: Lane[SubmissionProbe, ProbeAnswer] = store.lane(self._probe)
        self._reads: Lane[RunLookup, RunEnds] = store.lane(self._read)

    async def follow(self, steps: Generator[Step, Any, T]) -> T:
        """Take every step and give what the steps come to."""
        answer: object = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as done:
                result: T = done.value
                return result
            answer = await self.take(step)

    async def take(self, step: Step) -> bool | ProbeAnswer | RunEnds:
        """Take one step, in one statement with whatever waits beside it."""
        if isinstance(step, NewAdmission):
            return await self._inserts.ask(_parcel(step))
        if isinstance(step, SubmissionProbe):
            return await self._probes.ask(Parcel(item=step, keys=frozenset()))
        if isinstance(step, RunLookup):
            return await self.read(step)
        return (await self._store.run(lambda work: attach([step], work)))[0]

    async def read(self, lookup: RunLookup) -> RunEnds:
        """Read the ends of one run."""
        return await self._reads.ask(Parcel(item=lookup, keys=frozenset()))

    def _insert(self, work: UnitOfWork, items: Sequence[NewAdmission], *, skip_locked: bool) -> Sequence[bool]:
        del skip_locked  # an admission locks no row; it waits for whoever holds its key
        return insert(items, work, self._store.clock)

    def _probe(self, work: UnitOfWork, items: Sequence[SubmissionProbe], *, skip_locked: bool) -> Sequence[ProbeAnswer]:
        del skip_locked  # no row is locked
        return probe(items, work, self._store.clock)

    def _read(self, work: UnitOfWork, items: Sequence[RunLookup], *, skip_locked: bool) -> Sequence[RunEnds | Held]:
        del skip_locked  # no row is locked
        read = Ends(work).read(items)
        for ends in read:
            self._store.clock.observe(instant(ends.now))
        return [ends if ends.is_whole else HELD for ends in read]


def _parcel(built: NewAdmission) -> Parcel[NewAdmission]:
    """Keep items with a key or a run id in common apart: within a statement each occurs once."""
    event = built.event
    keys = frozenset({("key", event.tenant_id, built.key_digest), ("run", event.tenant_id, event.run_id)})
    return Parcel(item=built, keys=keys, size=built.size)
