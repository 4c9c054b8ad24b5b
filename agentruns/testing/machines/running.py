"""Run a machine with so many examples and so many steps; how slow this computer is today changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def run_machine(
    machine: Callable[[], RuleBasedStateMachine], *, examples: int, steps: int, is_repeatable: bool = False
) -> None:
    """Try a machine, and raise what its shortest failing run raises.

    Args:
        machine: makes one for each example.
        examples: how many are tried.
        steps: at most so many in one of them.
        is_repeatable: the examples are the same each time, and a failing one is not made shorter.
    """
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    if is_repeatable:
        chosen = settings(chosen, derandomize=True, database=None, phases=[Phase.generate])
    # It takes any factory, although it is annotated as taking a class.
    run_state_machine_as_test(cast("Any", machine), settings=chosen)
