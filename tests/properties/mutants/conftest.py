"""Broken variants of the library's own rules: each changes one function, and a machine has to notice."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, cast

import pytest
from attrs import evolve, frozen
from sqlalchemy import false

from agentruns.domain.ledger import fold, rules_ends, rules_nodes, rules_waits
from agentruns.domain.ledger.classify import Completed, ReadyNodesPlan
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.records import AttemptStatus, OutstandingWait, SettledWait, WaitSettlement
from agentruns.domain.ledger.step import Step
from agentruns.domain.status import RunStatus
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.waits import WaitClass
from agentruns.runtime import submission
from agentruns.runtime.committer import CommitPlan, RunCommitter
from agentruns.runtime.driver.drive import Drive
from agentruns.store.admissions import Admissions
from agentruns.store.statements import leases, run_commit, submit
from agentruns.testing.machines.stored import StoredWorld, open_stored

Patch = Callable[[pytest.MonkeyPatch], None]


@frozen
class Mutant:
    """Name a broken rule, the machine that has to notice, and how the rule is broken."""

    name: str
    machine: str
    apply: Patch

    def __str__(self) -> str:
        return self.name


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """Put something in a function's place that is made from it."""
    return lambda patch: patch.setattr(owner, name, make(getattr(owner, name)))


# --- rules of the fold -----------------------------------------------------------------------------------------------


def _ended_under_any_fence(_original: Any) -> Any:
    def ended(step: Step, data: Any) -> Any:
        last = step.state.nodes.get(data.node_id)
        if last is None or last.attempt != data.attempt or last.status is not AttemptStatus.EXECUTING:
            raise step.breach("attempt_history")
        return last

    return ended


def _starts_what_is_under_way(original: Any) -> Any:
    return lambda last, step: last.status is AttemptStatus.EXECUTING or original(last, step)


def _starts_before_its_time(original: Any) -> Any:
    return lambda last, step: last.retry_not_before is not None or original(last, step)


def _takes_any_epoch(_original: Any) -> Any:
    def check_source(step: Step) -> None:
        if not step.kind.source.allows(step.event.epoch):
            raise step.breach("source")

    return check_source


def _fires_at_once(patch: pytest.MonkeyPatch) -> None:
    def fired(step: Step, data: Any) -> Any:
        wait = rules_waits._outstanding(step, data.wait_id, WaitClass.TIMER)
        how, sequence = WaitSettlement.FIRED, step.event.sequence
        settled = SettledWait(wait_id=wait.wait_id, how=how, position=wait.position, sequence=sequence)
        return rules_waits._settling(step, settled)

    patch.setitem(cast("dict[EventKind, Any]", fold.RULES), EventKind.TIMER_FIRED, fired)


def _permits_starts(original: Any) -> Any:
    def permits(status: RunStatus, kind: EventKind, epoch: int) -> bool:
        is_late = status is RunStatus.CANCELLATION_REQUESTED and kind is EventKind.NODE_ATTEMPT_STARTED
        return is_late or original(status, kind, epoch)

    return permits


def _wakes_at_the_first(original: Any) -> Any:
    return lambda kind, **_outstanding: original(kind, are_waits_outstanding=False)


# --- submissions -----------------------------------------------------------------------------------------------------


def _takes_other_content(_original: Any) -> Any:
    def existing(prepared: Any, seen: Any, verifier: Any) -> Generator[Any, Any, Any]:
        lookup = prepared.lookup_by_key if seen.has_key else prepared.lookup_by_run
        stored = verifier.verify((yield lookup))
        return submission.AgentRunAdmission(outcome=MutationOutcome.IDEMPOTENT, snapshot=verifier.snapshot(stored))

    return existing


# --- statements ------------------------------------------------------------------------------------------------------


def _without(word: str) -> Patch:
    """Drop the predicates of a fence that give one answer."""

    def drop(original: Any) -> Any:
        return lambda item, now: [
            (false() if told == word else condition, told) for condition, told in original(item, now)
        ]

    def apply(patch: pytest.MonkeyPatch) -> None:
        for module in (run_commit, leases):
            replaced(module, "fence_refusals", drop)(patch)

    return apply


def _without_head(patch: pytest.MonkeyPatch) -> None:
    for module in (run_commit, leases):
        patch.setattr(module, "head_refusal", lambda _item: (false(), "head"))


def _keeps_the_epoch(original: Any) -> Any:
    def claimed(now: Any, attempt_id: Any) -> Any:
        values = original(now, attempt_id)
        return {column: value for column, value in values.items() if column.key != "fencing_epoch"}

    return claimed


def _takes_what_is_leased(original: Any) -> Any:
    return lambda item, now: [(false() if told == "leased" else each, told) for each, told in original(item, now)]


def _admits_all(original: Any) -> Any:
    def add(self: Admissions, items: Any) -> Any:
        return evolve(original(self, items), admitted=(True,) * len(items))

    return add


# --- the driver ------------------------------------------------------------------------------------------------------


def _dispatches_idempotent_starts(_original: Any) -> Any:
    async def commit(self: Drive, draft: Any) -> Any:
        committer: RunCommitter = self._parts.committer
        plan = CommitPlan(fence=self._keeper.fence, head=self._head, build=draft.build, size=0)
        result = await committer.commit(plan)
        if result.outcome is MutationOutcome.IDEMPOTENT:
            await self._catch_up()
        else:
            self._take_over(draft, result)
        return tuple(start.node_id for start in draft.starts)

    return commit


def _is_partly_done(plan: ReadyNodesPlan) -> bool:
    return any(isinstance(each, Completed) for each in plan.nodes)


def _expires_later(wait: OutstandingWait, instant: Any) -> bool:
    return wait.expires_at is not None and wait.expires_at < instant


def _set(owner: Any, name: str, value: Any) -> Patch:
    return replaced(owner, name, lambda _original: value)


_OF_THE_FOLD: Final[dict[str, tuple[str, Patch]]] = {
    "completion under an old fence": ("FenceMachine", replaced(rules_nodes, "_ended", _ended_under_any_fence)),
    "start of what is under way": (
        "FenceMachine",
        replaced(rules_nodes, "_may_start_after", _starts_what_is_under_way),
    ),
    "retry ignores the delay": ("FenceMachine", replaced(rules_nodes, "_may_start_after", _starts_before_its_time)),
    "older epoch writes": ("FenceMachine", replaced(fold, "_check_source", _takes_any_epoch)),
    "barrier takes a partial result set": (
        "ReplayMachine",
        _set(ReadyNodesPlan, "is_barrier_ready", property(_is_partly_done)),
    ),
    "answer at the instant of expiry": ("LifecycleMachine", _set(OutstandingWait, "is_expired", _expires_later)),
    "timer fires early": ("LifecycleMachine", _fires_at_once),
    "deadline before its time": ("LifecycleMachine", _set(rules_ends, "_is_deadline_over", lambda _step: True)),
    "anybody answers": ("LifecycleMachine", _set(rules_waits, "_may_resolve", lambda *_arguments: True)),
    "first settled wait wakes the run": ("LifecycleMachine", replaced(fold, "status_after", _wakes_at_the_first)),
    "end leaves waits behind": ("LifecycleMachine", _set(rules_ends, "_abandoning", lambda _step: {})),
    "start after a request to end": ("LifecycleMachine", replaced(fold, "permits", _permits_starts)),
}
_OF_SUBMISSIONS: Final[dict[str, tuple[str, Patch]]] = {
    "conflict check skipped": ("SubmissionMachine", replaced(submission, "_existing", _takes_other_content)),
    "deadline before key evidence": (
        "SubmissionMachine",
        _set(submission, "_built_in_time", lambda prepared, stamp: prepared.build(stamp)),
    ),
    "second key for one run": ("SubmissionMachine", _set(submission, "_refuse_other_run", lambda *_arguments: None)),
    "lost race answers committed": ("StoredSubmissionMachine", replaced(Admissions, "add", _admits_all)),
}
_OF_LEASES: Final[dict[str, tuple[str, Patch]]] = {
    "stale fence predicate dropped": ("StoredFenceMachine", _without("stale_fence")),
    "expiry predicate dropped": ("StoredFenceMachine", _without("expired")),
    "head predicate dropped": ("StoredFenceMachine", _without_head),
    "claim keeps the epoch": ("StoredFenceMachine", replaced(leases, "_claimed", _keeps_the_epoch)),
    "claim takes a live lease": ("StoredFenceMachine", replaced(leases, "_claim_refusals", _takes_what_is_leased)),
    "idempotent start dispatches": ("StoredReplayMachine", replaced(Drive, "_commit", _dispatches_idempotent_starts)),
}
MUTANTS: Final = tuple(
    Mutant(name, machine, apply) for name, (machine, apply) in {**_OF_THE_FOLD, **_OF_SUBMISSIONS, **_OF_LEASES}.items()
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try each mutant on its own, those of the pure domain apart from those of a server."""
    if "mutant" in metafunc.fixturenames:
        is_stored = "stored" in metafunc.function.__name__
        chosen = [each for each in MUTANTS if each.machine.startswith("Stored") is is_stored]
        metafunc.parametrize("mutant", chosen, ids=str)


@pytest.fixture
def mutants() -> tuple[Mutant, ...]:
    """All of them."""
    return MUTANTS


@pytest.fixture
def mutated(mutant: Mutant) -> Iterator[Mutant]:
    """Break the rule of a mutant for one test; no statement that was built before or meanwhile is kept."""
    with pytest.MonkeyPatch.context() as patch:
        _forget_statements()
        mutant.apply(patch)
        yield mutant
    _forget_statements()


@pytest.fixture
def world_of(database_url: str, owner_url: str, run: Any) -> Iterator[Callable[[str], StoredWorld]]:
    """Open the world that a machine wants: that of leases has a clock which stands still."""
    opened: list[Any] = []

    def world(machine: str) -> StoredWorld:
        opening = open_stored(owner_url, store_url=database_url, has_frozen_clock=machine == "StoredFenceMachine")
        store, engine = run(opening.__aenter__())
        opened.append(opening)
        return StoredWorld(run, store, engine)

    yield world
    for opening in opened:
        run(opening.__aexit__(None, None, None))


def _forget_statements() -> None:
    for module in (run_commit, leases, submit):
        for each in vars(module).values():
            if hasattr(each, "cache_clear"):
                each.cache_clear()
