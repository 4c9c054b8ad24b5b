"""Run a machine with so many examples and so many steps; how slow this computer is today changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from attrs import define
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


@define(kw_only=True)
class MachineTotals:
    """Count what a machine was put through.

    Attributes:
        examples: runs of the machine, those that made a failure shorter among them.
        steps: rules that were executed in all of them.
    """

    examples: int = 0
    steps: int = 0

    def count(self, machine: RuleBasedStateMachine) -> RuleBasedStateMachine:
        """Count one more example, and the steps that it will take: invariants are asked once before, and after each."""
        self.examples, self.steps = self.examples + 1, self.steps - 1
        check: Callable[..., Any] = machine.check_invariants

        def counted(*arguments: Any, **options: Any) -> Any:
            self.steps += 1
            return check(*arguments, **options)

        machine.check_invariants = counted  # type: ignore[method-assign]
        return machine


def run_machine(
    machine: Callable[[], RuleBasedStateMachine],
    *,
    examples: int,
    steps: int,
    is_repeatable: bool = False,
    totals: MachineTotals | None = None,
) -> MachineTotals:
    """Try a machine, raise what its shortest failing run raises, and say how much was tried.

    Args:
        machine: makes one for each example.
        examples: how many are tried.
        steps: at most so many in one of them.
        is_repeatable: the examples are the same each time, and a failing one is not made shorter.
        totals: what is counted on; for whoever wants to know how much was tried until it failed.
    """
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    if is_repeatable:
        phases = [Phase.generate]
        chosen = settings(chosen, derandomize=True, database=None, phases=phases, report_multiple_bugs=False)
    counted = totals if totals is not None else MachineTotals()
    # It takes any factory, although it is annotated as taking a class.
    run_state_machine_as_test(cast("Any", lambda: counted.count(machine())), settings=chosen)
    return counted
