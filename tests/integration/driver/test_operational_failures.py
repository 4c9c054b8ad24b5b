"""What this process cannot do now says nothing about a run: it is left alone, and completes once that is gone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from attrs import define

from agentruns.domain.graph.reducers import MergeReducer
from agentruns.domain.graph.returns import Finish
from agentruns.domain.schema import JsonSchemaRegistry
from agentruns.errors import (
    AgentRunsError,
    DeploymentError,
    ExecutableGraphUnavailableError,
    SchemaUnavailableError,
    StoreUnavailableError,
)
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.replay import RunReader
from agentruns.runtime.store import AgentRunStore
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
#: A start, a completion and a barrier: each drive of the three has one superstep, so that there is a past to read.
ONE_SUPERSTEP = 3


@define
class Fault:
    """Raise at one call of a function, counted from when it was armed."""

    error: BaseException
    only_reading: bool
    calls_left: int = -1
    is_reading: bool = False
    was_raised: bool = False

    def arm(self, call: int) -> None:
        self.calls_left, self.was_raised = call, False

    def disarm(self) -> None:
        self.calls_left = -1

    def strike(self) -> None:
        if self.only_reading and not self.is_reading:
            return
        if self.calls_left == 0:
            self.was_raised = True
            raise self.error
        self.calls_left -= self.calls_left > 0


def before(patch: pytest.MonkeyPatch, owner: type, name: str, fault: Fault) -> None:
    """Let the fault strike before a method does anything."""
    method = getattr(owner, name)

    def struck(self: Any, *arguments: Any, **options: Any) -> Any:
        fault.strike()
        return method(self, *arguments, **options)

    patch.setattr(owner, name, struck)


def note_reading(patch: pytest.MonkeyPatch, fault: Fault) -> None:
    """Tell the fault when a record is being read."""
    read = RunReader.read

    async def noted(self: Any, *arguments: Any, **options: Any) -> Any:
        fault.is_reading = True
        try:
            return await read(self, *arguments, **options)
        finally:
            fault.is_reading = False

    patch.setattr(RunReader, "read", noted)


MISSING = SchemaUnavailableError(reason="not_installed", reference="schema")
GAVE_UP = SchemaUnavailableError(reason="validator_failed", reference="schema")
ABSENT = ExecutableGraphUnavailableError(reason="not_installed", graph="graph")

#: What is called, what it raises, whether only while a record is read, and the reasons under which that arrives.
FAULTS: dict[str, tuple[type, str, BaseException, bool, set[str]]] = {
    "a read": (AgentRunStore, "read", StoreUnavailableError(attempts=1), False, {""}),
    "a graph": (ExecutableGraphRegistry, "resolve", ABSENT, False, {"not_installed"}),
    "a schema": (JsonSchemaRegistry, "validate", MISSING, False, {"schema", "not_installed"}),
    "a validator": (JsonSchemaRegistry, "validate", GAVE_UP, True, {"validator"}),
    "a reducer": (MergeReducer, "reduce", DeploymentError(reason="dependency"), False, {"reducer"}),
    "memory": (MergeReducer, "reduce", MemoryError(), False, {"out_of_memory"}),
    "a reducer's own fault": (MergeReducer, "reduce", KeyError("x"), True, {"reducer"}),
}


def three() -> Any:
    return chain(
        a=lambda _context: {"a": 1}, b=lambda _context: {"b": 2}, c=lambda context: Finish(context.state, {"c": 3})
    )


async def is_left_alone(world: DriveWorld) -> bool:
    found = await world.rows("SELECT quarantined_at, lease_attempt_id FROM agentruns.runs")
    return [tuple(row) for row in found] == [(None, None)]


@pytest.mark.parametrize("is_reused", [True, False])
@pytest.mark.parametrize("what", FAULTS)
def test_LED_13_an_operational_failure_anywhere_isolates_nothing_and_the_run_completes_without_it(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch, what: str, *, is_reused: bool
) -> None:
    owner, name, error, only_reading, reasons = FAULTS[what]
    fault = Fault(error, only_reading)
    seen: list[tuple[str, bool, bool]] = []

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        note_reading(monkeypatch, fault)
        before(monkeypatch, owner, name, fault)
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.YIELDED
        call, outcome = 0, AgentLoopOutcome.YIELDED
        while outcome is AgentLoopOutcome.YIELDED:
            held = await world.claimed(run_id)
            fault.arm(call)
            try:
                outcome = (await world.loop.run(held, world.shutdown)).outcome
                call = 0
            except AgentRunsError as raised:
                seen.append((getattr(raised, "reason", ""), raised.retryable, fault.was_raised))
                call += 1
            fault.disarm()
            assert outcome is not AgentLoopOutcome.FAILED
            assert await is_left_alone(world)
        assert outcome is AgentLoopOutcome.SUCCEEDED
        assert (await world.kinds())[-1] == "graph-barrier-succeeded"

    in_world(work, three(), lease=LONG, maximum_durable_events=ONE_SUPERSTEP, reuse_verified_prefix=is_reused)
    # With a kept part nothing is validated or reduced again while the record is read.
    assert set(seen) <= {(reason, what == "a read", True) for reason in reasons}
    assert seen or (is_reused and only_reading)
