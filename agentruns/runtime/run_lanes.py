"""Send what waits together: inserts, probes, reads and requests to end runs of a store, each kind for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, TypeVar, cast

from attrs import frozen

from agentruns.domain.ids import RunId
from agentruns.domain.run_ends import RunEnds
from agentruns.domain.scalars import TenantId
from agentruns.errors import AgentRunsError
from agentruns.runtime.control import ControlPlan, SentControl
from agentruns.runtime.lane import HELD, Held, Lane, Parcel
from agentruns.runtime.steps import Step, Steps, Walk, decide, follow_all, insert, probe
from agentruns.runtime.store import AgentRunStore
from agentruns.store.admissions import NewAdmission
from agentruns.store.ends import MAXIMUM_BODY_BYTES, Ends, RunLookup
from agentruns.store.keys import ProbeAnswer, SubmissionProbe
from agentruns.store.mapping import instant
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.waits import WaitLookup

T = TypeVar("T")


@frozen(kw_only=True)
class _Overtaken:
    """A decision that is to be made again while nobody else moves its run.

    Attributes:
        steps_of: begins its steps anew, with the same ids.
    """

    run: tuple[TenantId, RunId]
    steps_of: Callable[[], Steps[Any]]


class RunLanes:
    """Take the steps of many calls of one store at a time, each on a connection of ours."""

    def __init__(self, store: AgentRunStore) -> None:
        self._store = store
        self._inserts: Lane[NewAdmission, bool] = store.lane(
            self._insert, name="admissions", maximum_bytes=MAXIMUM_BODY_BYTES
        )
        self._probes: Lane[SubmissionProbe, ProbeAnswer] = store.lane(self._probe, name="probes", commits=False)
        self._reads: Lane[RunLookup, RunEnds] = store.lane(self._read, name="reads", commits=False)
        self._decisions: Lane[ControlPlan, SentControl] = store.lane(self._decide, name="decisions")
        self._overtaken: Lane[_Overtaken, Any] = store.lane(self._decide_held, name="held_decisions")

    async def follow(self, steps: Generator[Step, Any, T]) -> T:
        """Take every step and give what the steps come to."""
        answer: object = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as done:
                return cast("T", done.value)
            answer = await self._take(step)

    async def decided(self, steps_of: Callable[[], Steps[T]]) -> T:
        """Take the steps of a decision about one run; when the run was faster, once more while its row is held.

        ``steps_of`` begins the steps and is called anew for each try, so it must give the same ids each time.
        """
        steps, answer = steps_of(), cast("object", None)
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as done:
                return cast("T", done.value)
            answer = await self._take(step)
            if isinstance(step, ControlPlan) and not cast("SentControl", answer).is_committed:
                again = _Overtaken(run=step.run, steps_of=steps_of)
                result = await self._overtaken.ask(Parcel(item=again, keys=frozenset({step.run}), size=step.size))
                if isinstance(result, AgentRunsError):
                    raise result
                return cast("T", result)

    async def follow_all(
        self, many: Sequence[tuple[Generator[Step, Any, T], Collection[int]]]
    ) -> tuple[T | AgentRunsError, ...]:
        """Take the steps of many at once, each after the ones at the positions given beside it.

        An error of ours is the result of its own steps only.
        """
        tasks: list[asyncio.Task[T | AgentRunsError]] = []
        for steps, after in many:
            settled = self._settled(steps, after=[tasks[position] for position in after])
            tasks.append(asyncio.create_task(settled, name="agentruns:submission"))
        return tuple(await asyncio.gather(*tasks))

    async def _settled(
        self, steps: Generator[Step, Any, T], *, after: Collection[asyncio.Task[Any]]
    ) -> T | AgentRunsError:
        if after:
            await asyncio.wait(after)
        try:
            return await self.follow(steps)
        except AgentRunsError as error:
            return error

    async def _take(self, step: Step) -> object:
        """Take one step, in one statement with whatever waits beside it."""
        if isinstance(step, NewAdmission):
            return await self._inserts.ask(_parcel(step))
        if isinstance(step, SubmissionProbe):
            return await self._probes.ask(Parcel(item=step, keys=frozenset()))
        if isinstance(step, RunLookup):
            return await self.read(step)
        if isinstance(step, ControlPlan):
            return await self.decide(step)
        if isinstance(step, WaitLookup):
            return (await self._store.read(lambda work: work.waits.find([step])))[0]
        return (await self._store.run(lambda work: work.keys.attach([step])))[0]

    async def read(self, lookup: RunLookup) -> RunEnds:
        """Read the ends of one run."""
        return await self._reads.ask(Parcel(item=lookup, keys=frozenset()))

    async def decide(self, plan: ControlPlan) -> SentControl:
        """Commit a decision of the control plane at the head that it was planned at."""
        return await self._decisions.ask(Parcel(item=plan, keys=frozenset({plan.run}), size=plan.size))

    def _insert(self, work: UnitOfWork, items: Sequence[NewAdmission], *, skip_locked: bool) -> Sequence[bool]:
        del skip_locked  # an admission locks no row; it waits for whoever holds its key
        admitted = insert(items, work, self._store.clock)
        for item, is_admitted in zip(items, admitted, strict=True):
            if is_admitted:
                self._store.notifier.ready(item.event.tenant_id.text)
        return admitted

    def _probe(self, work: UnitOfWork, items: Sequence[SubmissionProbe], *, skip_locked: bool) -> Sequence[ProbeAnswer]:
        del skip_locked  # no row is locked
        return probe(items, work, self._store.clock)

    def _read(self, work: UnitOfWork, items: Sequence[RunLookup], *, skip_locked: bool) -> Sequence[RunEnds | Held]:
        del skip_locked  # no row is locked
        read = Ends(work).read(items)
        for ends in read:
            self._store.clock.observe(instant(ends.now))
        return [ends if ends.is_whole else HELD for ends in read]

    def _decide(
        self, work: UnitOfWork, items: Sequence[ControlPlan], *, skip_locked: bool
    ) -> Sequence[SentControl | Held]:
        sent = decide(items, work, self._store.clock, skip_locked=skip_locked)
        for each in sent:
            if each.made_ready:
                self._store.notifier.ready(each.draft.state.tenant_id.text)
            if each.ended:
                self._store.tell_of_end(each.draft.state.run_id)
        return [HELD if each.answer is None and skip_locked else each for each in sent]

    def _decide_held(self, work: UnitOfWork, items: Sequence[_Overtaken], *, skip_locked: bool) -> Sequence[Any | Held]:
        """Read and commit while the rows are held; whoever commits for these runs meanwhile waits, and finds it."""
        with work.transaction():
            is_held = work.control.hold([item.run for item in items], skip_locked=skip_locked)
            walks = [
                Walk(item.steps_of(), ()) if held or not skip_locked else None
                for item, held in zip(items, is_held, strict=True)
            ]
            results = iter(follow_all([walk for walk in walks if walk], work, self._store.clock))
        answers = [HELD if walk is None else next(results) for walk in walks]
        for item, answer in zip(items, answers, strict=True):
            if not isinstance(answer, Held | AgentRunsError):
                self._store.notifier.ready(item.run[0].text)
        return answers


def _parcel(built: NewAdmission) -> Parcel[NewAdmission]:
    """Keep items with a key or a run id in common apart: within a statement each occurs once."""
    event = built.event
    keys = frozenset({("key", event.tenant_id, built.key_digest), ("run", event.tenant_id, event.run_id)})
    return Parcel(item=built, keys=keys, size=built.size)
