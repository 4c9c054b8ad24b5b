"""Run a graph from its beginning to its end in memory, and say what it came to, inside and outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from attrs import define, field, frozen

from agentruns.domain.graph.executable import ExecutableGraph
from agentruns.domain.submission import DurableAgentAdmissionRequest
from agentruns.errors import CorruptDataError
from agentruns.testing.simulation.ending import RunEnd
from agentruns.testing.simulation.run import SimulatedRun
from agentruns.testing.simulation.schedule import Fault, Schedule
from agentruns.testing.simulation.settling import Answer

T = TypeVar("T")

#: A run that has not ended after so many turns goes round in circles.
MAXIMUM_TURNS: Final = 5_000


@frozen(kw_only=True)
class TrialEnd:
    """Hold what one trial came to.

    Attributes:
        end: of the run.
        effects: what was observed outside; ``None`` where nobody looks.
        is_repeatable: whether the journal, read once more, gives the same run.
        steps: what happened, in words.
    """

    end: RunEnd | str
    effects: Any
    is_repeatable: bool
    steps: tuple[str, ...]


@define(kw_only=True)
class GraphTrial:
    """Run one graph as often as is asked for, each time in a world that begins anew.

    Attributes:
        request: the submission, the same each time, so that the keys of effects are the same too.
        reset: makes the world outside as it was before.
        observe: says what the world outside looks like.
    """

    graph: ExecutableGraph
    request: DurableAgentAdmissionRequest
    answer: Answer | None
    node_timeout: float
    reset: Callable[[], object] | None
    observe: Callable[[], object] | None

    def under(self, schedule: Schedule) -> TrialEnd:
        """Run the graph under a schedule."""
        if self.reset is not None:
            self.reset()
        run = SimulatedRun(
            graph=self.graph,
            request=self.request,
            schedule=schedule,
            answer=self.answer,
            node_timeout=self.node_timeout,
        )
        is_repeatable, end = True, "it does not come to an end"
        try:
            found = asyncio.run(_driven(run)) or end
            is_repeatable = run.journal.refold(self.graph) == run.state
        except CorruptDataError as error:
            is_repeatable, found = False, f"the journal contradicts itself: {error.component} {error.reason}".strip()
        effects = None if self.observe is None else self.observe()
        return TrialEnd(end=found, effects=effects, is_repeatable=is_repeatable, steps=tuple(run.steps))


async def _driven(run: SimulatedRun) -> RunEnd | None:
    for _ in range(MAXIMUM_TURNS):
        if not await run.turn():
            return RunEnd.of(run.state)
    return None


@define
class DrawnSchedule:
    """Leave to Hypothesis what a schedule decides; simpler is what goes less wrong.

    Attributes:
        draw: of Hypothesis.
        faults_left: how many workers may still die.
    """

    draw: Callable[[Any], Any]
    strategies: DrawnChoices
    faults_left: int = field(default=3)

    def fault(self, _commit: str, /) -> Fault:
        """Let few workers die. It is drawn in any case, so that whoever dies less often draws less."""
        fault: Fault = self.draw(self.strategies.fault)
        if fault is Fault.NONE or self.faults_left == 0:
            return Fault.NONE
        self.faults_left -= 1
        return fault

    def order(self, names: Sequence[T], /) -> Sequence[T]:
        """Draw an order."""
        return list(self.draw(self.strategies.order(list(names)))) if len(names) > 1 else names

    def overlaps(self) -> bool:
        """Draw whether a batch runs at once."""
        return bool(self.draw(self.strategies.either))

    def width(self, most: int, /) -> int:
        """Draw whether nodes run together at all."""
        return 1 if most == 1 or self.draw(self.strategies.either) else most


@frozen(kw_only=True)
class DrawnChoices:
    """The strategies of a drawn schedule."""

    fault: Any
    either: Any
    order: Callable[[list[Any]], Any]
