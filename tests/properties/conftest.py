"""How much the machines were put through, at the end of a session of the property tests alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentruns.testing.machines.running import MachineTotals


@pytest.fixture
def put_through(record_property: Callable[[str, object], None]) -> Callable[[MachineTotals], None]:
    """Note the totals of a machine: ``put_through(run_machine(…))``."""

    def note(totals: MachineTotals) -> None:
        record_property("examples", totals.examples)
        record_property("steps", totals.steps)

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write a line for each machine, and one for all of them."""
    rows = [
        (report.nodeid.rpartition("/")[2], dict(report.user_properties), report.duration)
        for report in terminalreporter.stats.get("passed", [])
        if any(name == "steps" for name, _ in getattr(report, "user_properties", ()))
    ]
    if not rows:
        return
    terminalreporter.section("machines")
    for name, counts, seconds in sorted(rows):
        terminalreporter.line(f"{name}: {counts['examples']} examples, {counts['steps']} steps, {seconds:.0f} s")
    examples, steps = (sum(counts[name] for _, counts, _ in rows) for name in ("examples", "steps"))
    terminalreporter.line(f"together: {examples} examples, {steps} steps, {sum(row[2] for row in rows):.0f} s")
