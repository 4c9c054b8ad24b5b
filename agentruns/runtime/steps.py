"""Do the steps of submissions and cancellations on one connection, those of one kind that wait together as one set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from attrs import define, field

from agentruns.domain.run_ends import RunEnds
from agentruns.domain.run_waits import StoredWaitRow
from agentruns.errors import AgentRunsError
from agentruns.runtime.cancellation import CancellationStep
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.control import ControlPlan, SentControl
from agentruns.runtime.settling import SettlingStep
from agentruns.runtime.submission import SubmissionStep
from agentruns.store.admissions import NewAdmission
from agentruns.store.control_commits import ControlCommit
from agentruns.store.ends import Ends, RunLookup
from agentruns.store.keys import KeyAttachment, ProbeAnswer, SubmissionProbe
from agentruns.store.mapping import instant
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.waits import WaitLookup

T = TypeVar("T")

Step: TypeAlias = SubmissionStep | CancellationStep | SettlingStep
Steps: TypeAlias = Generator[Step, Any, T]


def follow(steps: Steps[T], work: UnitOfWork, clock: DatabaseClock) -> T:
    """Take every step on this connection and give what the steps come to."""
    answer: object = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as done:
            return cast("T", done.value)
        answer = _take([step], work, clock)[0]


@define
class Walk(Generic[T]):
    """Steps of one among many, and how far they have been taken.

    Attributes:
        after: positions of the walks that must have come to their end before this one begins.
        result: what the steps came to, or the error that they ended with.
    """

    steps: Steps[T]
    after: Collection[int]
    asked: Step | None = field(default=None, init=False)
    result: T | AgentRunsError | None = field(default=None, init=False)

    def send(self, answer: object) -> None:
        """Answer what was asked; afterwards either the next question stands or the result."""
        self.asked = None
        try:
            self.asked = self.steps.send(answer)
        except StopIteration as done:
            self.result = done.value
        except AgentRunsError as error:
            self.result = error


def follow_all(walks: Sequence[Walk[T]], work: UnitOfWork, clock: DatabaseClock) -> tuple[T | AgentRunsError, ...]:
    """Take the steps of many together, round by round; an error of ours is the result of its own walk only."""
    waiting = dict(enumerate(walks))
    while any(walk.result is None for walk in walks):
        for position, walk in list(waiting.items()):
            if all(walks[earlier].result is not None for earlier in walk.after):
                del waiting[position]
                walk.send(None)
        for kind in _SETS:
            asking = [walk for walk in walks if isinstance(walk.asked, kind)]
            if asking:
                answers = _take([cast("Step", walk.asked) for walk in asking], work, clock)
                for walk, answer in zip(asking, answers, strict=True):
                    walk.send(answer)
    return tuple(walk.result for walk in walks if walk.result is not None)


def insert(items: Sequence[NewAdmission], work: UnitOfWork, clock: DatabaseClock) -> Sequence[bool]:
    """Insert admissions, and take the database's time from the answer."""
    answer = work.admissions.add(items)
    clock.observe(answer.now)
    return answer.admitted


def probe(items: Sequence[SubmissionProbe], work: UnitOfWork, clock: DatabaseClock) -> Sequence[ProbeAnswer]:
    """Look for keys and candidates, and take the database's time from the answer."""
    answers = work.keys.probe(items)
    for answer in answers:
        clock.observe(answer.now)
    return answers


def read(items: Sequence[RunLookup], work: UnitOfWork, clock: DatabaseClock) -> Sequence[RunEnds]:
    """Read the ends of runs, and take the database's time from the answer; what is too large together is read alone."""
    found = Ends(work).read(items)
    for ends in found:
        clock.observe(instant(ends.now))
    return [ends if ends.is_whole else Ends(work).read([item])[0] for item, ends in zip(items, found, strict=True)]


def attach(items: Sequence[KeyAttachment], work: UnitOfWork, clock: DatabaseClock) -> Sequence[bool]:
    """Give keys to runs that have none. The answer brings no time."""
    del clock
    return work.keys.attach(items)


def find_waits(
    items: Sequence[WaitLookup], work: UnitOfWork, clock: DatabaseClock
) -> Sequence[tuple[StoredWaitRow | None, ...]]:
    """Read waits of runs. The answer brings no time."""
    del clock
    return work.waits.find(items)


def decide(
    items: Sequence[ControlPlan], work: UnitOfWork, clock: DatabaseClock, *, skip_locked: bool = False
) -> Sequence[SentControl]:
    """Commit at the stamp of this moment, and take the database's time from the answer."""
    stamp = clock.stamp()
    drafts = [item.build(stamp) for item in items]
    commits = [ControlCommit(draft=draft, until=item.until) for draft, item in zip(drafts, items, strict=True)]
    answers = work.control.add(commits, skip_locked=skip_locked)
    for answer in answers:
        if answer is not None:
            (clock.correct if answer.word == "stamp" else clock.observe)(answer.now)
    return [SentControl(draft=draft, answer=answer) for draft, answer in zip(drafts, answers, strict=True)]


#: How each kind of step is taken: one statement over a set.
_SETS: Final[dict[type, Callable[..., Sequence[object]]]] = {
    NewAdmission: insert,
    SubmissionProbe: probe,
    RunLookup: read,
    KeyAttachment: attach,
    WaitLookup: find_waits,
    ControlPlan: decide,
}


def _take(steps: Sequence[Step], work: UnitOfWork, clock: DatabaseClock) -> Sequence[object]:
    """Take steps of one kind."""
    return _SETS[type(steps[0])](steps, work, clock)
