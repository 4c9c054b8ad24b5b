"""How much the laws were put through, at the end of a session: examples, steps and time, also over many processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import frozen
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine

from agentruns.testing.machines.running import MachineTotals, run_machine

#: Seconds of one test in the nightly profile, whose examples take longer than the suite's tests may.
PATIENCE = 3_600
MANY_EXAMPLES = 200
#: What Hypothesis says of each phase; older releases put "examples" behind either number.
_DRAWN = re.compile(r"(\d+) passing(?: examples)?, (\d+) failing")


@frozen
class Tried:
    """What a test was put through; one without steps is no machine."""

    name: str
    examples: int
    steps: int | None
    seconds: float
    is_failed: bool

    @property
    def line(self) -> str:
        steps = "" if self.steps is None else f"{self.steps} steps, "
        return f"{self.name}: {self.examples} examples, {steps}{self.seconds:.0f} s{', FAILED' * self.is_failed}"


@pytest.fixture
def put_through(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Run a machine and note its totals, whatever it finds: ``put_through(machine, examples=…, steps=…)``."""

    def run(machine: Callable[[], RuleBasedStateMachine], *, examples: int, steps: int) -> None:
        totals = MachineTotals()
        try:
            run_machine(machine, examples=examples, steps=steps, totals=totals)
        finally:
            record_property("examples", totals.examples)
            record_property("steps", totals.steps)

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items if settings().max_examples > MANY_EXAMPLES else ():
        if "/properties/" in item.nodeid:
            item.add_marker(pytest.mark.timeout(PATIENCE))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Note how many examples Hypothesis has drawn, where the report takes it along to the process that writes it."""
    drawn = getattr(item, "hypothesis_statistics", None)
    if call.when == "call" and drawn is not None:
        examples = sum(int(passed) + int(failed) for passed, failed in _DRAWN.findall(drawn))
        item.user_properties.append(("examples", examples))
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line for each machine, one for all of them, and one for all other laws."""
    tried = [
        Tried(
            name=report.nodeid.rpartition("/")[2],
            examples=counts["examples"],
            steps=counts.get("steps"),
            seconds=report.duration,
            is_failed=report.failed,
        )
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if "examples" in (counts := dict(getattr(report, "user_properties", ())))
    ]
    machines = sorted((each for each in tried if each.steps is not None), key=lambda each: each.name)
    laws = [each for each in tried if each.steps is None]
    if machines:
        terminalreporter.section("machines")
        for machine in machines:
            terminalreporter.line(machine.line)
        terminalreporter.line(_together("together", machines).line)
    if laws:
        terminalreporter.section("laws over examples")
        terminalreporter.line(_together(f"{len(laws)} tests", laws).line)


def _together(name: str, tried: list[Tried]) -> Tried:
    steps = [each.steps for each in tried if each.steps is not None]
    return Tried(
        name=name,
        examples=sum(each.examples for each in tried),
        steps=sum(steps) if steps else None,
        seconds=sum(each.seconds for each in tried),
        is_failed=any(each.is_failed for each in tried),
    )
