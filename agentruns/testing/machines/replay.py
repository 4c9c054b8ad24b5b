"""Random graphs whose workers die at any commit, held against the same graph when nothing goes wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeVar

from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentruns.domain.payload import JournalPayload
from agentruns.domain.waits import InterruptRegistration
from agentruns.testing.histories import sample_request
from agentruns.testing.history_waits import payload
from agentruns.testing.machines.record_laws import check_record
from agentruns.testing.simulation.ending import RunEnd
from agentruns.testing.simulation.run import SimulatedRun
from agentruns.testing.simulation.schedule import Fault, Schedule, Undisturbed
from agentruns.testing.strategies.behaviours import BehavingGraph, behaving_graphs

T = TypeVar("T")

#: A node that hangs is given up after this many seconds. Those that do not hang end in their first step on the loop.
_PATIENCE: Final = 0.001
_TURNS: Final = 500


@define
class ArmedSchedule:
    """Let one commit fail that is still to come, and put what runs together into another order.

    Attributes:
        at: how many commits succeed before it.
        backwards: whether nodes and waits come in the opposite order.
    """

    armed: Fault = Fault.NONE
    at: int = 0
    backwards: bool = False
    is_overlapping: bool = False
    widest: int = 64
    faults: int = field(default=0)

    def fault(self, _commit: str, /) -> Fault:
        """Count down to the commit that fails."""
        self.at -= 1
        if self.at >= 0 or self.armed is Fault.NONE:
            return Fault.NONE
        fault, self.armed = self.armed, Fault.NONE
        self.faults += 1
        return fault

    def order(self, names: Sequence[T], /) -> Sequence[T]:
        """Turn the order round, or leave it."""
        return names[::-1] if self.backwards else names

    def overlaps(self) -> bool:
        """Say whether a batch runs at once."""
        return self.is_overlapping

    def width(self, most: int, /) -> int:
        """Narrow the batches."""
        return max(1, min(most, self.widest))


class ReplayMachine(RuleBasedStateMachine):
    """Drive a run of a random graph turn by turn, with workers that die; at the end compare it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.schedule = ArmedSchedule()

    @initialize(graph=behaving_graphs())
    def admit(self, graph: BehavingGraph) -> None:
        """Find out what the graph comes to when nothing goes wrong, and begin again."""
        self.graph = graph
        self.undisturbed = self.runner.run(_driven(self._run_of(Undisturbed())))
        self.before = Counter(graph.calls)
        self.run = self._run_of(self.schedule)

    def _run_of(self, schedule: Schedule) -> SimulatedRun:
        executable = self.graph.executable
        request = sample_request(executable, state={})
        return SimulatedRun(
            graph=executable, request=request, schedule=schedule, answer=_answer, node_timeout=_PATIENCE
        )

    @rule(
        fault=st.sampled_from(Fault),
        at=st.integers(0, 2),
        backwards=st.booleans(),
        is_overlapping=st.booleans(),
        widest=st.sampled_from([1, 64]),
    )
    def turn(self, fault: Fault, at: int, backwards: bool, is_overlapping: bool, widest: int) -> None:
        """Take a turn in which one commit may fail; a run that is over is read from its first event instead."""
        if self.run.state.status.is_terminal:
            assert self.run.journal.refold(self.graph.executable) == self.run.state
            return
        self.schedule.armed, self.schedule.at = fault, at
        self.schedule.backwards, self.schedule.is_overlapping, self.schedule.widest = backwards, is_overlapping, widest
        self.runner.run(self.run.turn())

    @rule()
    def die(self) -> None:
        """Lose the worker between two turns."""
        if not self.run.state.status.is_terminal:
            self.run.replace_worker()

    @invariant()
    def the_state_is_what_is_stored(self) -> None:
        """DRV-18, LED-4: what the worker carries is the fold of what is durable."""
        if hasattr(self, "run"):
            assert self.run.journal.fold(self.graph.executable) == self.run.state

    @invariant()
    def only_committed_starts_were_called(self) -> None:
        """LEA-14: each call belongs to a start that is durable, and each start is called at most once."""
        if hasattr(self, "run"):
            calls = Counter(self.graph.calls) - self.before
            assert set(calls.values()) <= {1}
            assert set(calls) <= self.run.journal.attempt_ids

    def teardown(self) -> None:
        """Let the run come to its end in peace, and compare."""
        if hasattr(self, "run"):
            self.schedule.armed = Fault.NONE
            end = self.runner.run(_driven(self.run))
            check_record(self.run.journal.events, self.run.journal.ready)
            assert end == self.undisturbed, f"{end}, and undisturbed {self.undisturbed}"
        self.runner.close()


async def _driven(run: SimulatedRun) -> RunEnd:
    for _ in range(_TURNS):
        if run.state.status.is_terminal or not await run.turn():
            return RunEnd.of(run.state)
    raise AssertionError("the run does not come to an end")


def _answer(_asked: InterruptRegistration) -> JournalPayload:
    return payload(1)
