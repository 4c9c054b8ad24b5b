"""Do the steps of a submission on one connection, one after the other."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from agentruns.domain.run_ends import RunEnds
from agentruns.runtime.clock import DatabaseClock
from agentruns.runtime.submission import Step
from agentruns.store.admissions import NewAdmission
from agentruns.store.ends import Ends, RunLookup
from agentruns.store.keys import KeyAttachment, ProbeAnswer, SubmissionProbe
from agentruns.store.unit_of_work import UnitOfWork

T = TypeVar("T")


def follow(steps: Generator[Step, Any, T], work: UnitOfWork, clock: DatabaseClock) -> T:
    """Take every step on this connection and give what the steps come to."""
    answer: object = None
    while True:
        try:
            step = steps.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        answer = take(step, work, clock)


def take(step: Step, work: UnitOfWork, clock: DatabaseClock) -> bool | ProbeAnswer | RunEnds:
    """Take one step: one statement over a set of one."""
    if isinstance(step, NewAdmission):
        return insert([step], work, clock)[0]
    if isinstance(step, SubmissionProbe):
        return probe([step], work, clock)[0]
    if isinstance(step, RunLookup):
        return Ends(work).read([step])[0]
    return attach([step], work)[0]


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


def attach(items: Sequence[KeyAttachment], work: UnitOfWork) -> Sequence[bool]:
    """Give keys to runs that have none."""
    return work.keys.attach(items)
