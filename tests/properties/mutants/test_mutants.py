"""No mutant survives its machine, and without a mutant the same examples pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from agentruns.testing.machines.fences import FenceMachine
from agentruns.testing.machines.lifecycle import LifecycleMachine
from agentruns.testing.machines.replay import ReplayMachine
from agentruns.testing.machines.running import run_machine
from agentruns.testing.machines.stored import StoredWorld
from agentruns.testing.machines.stored_fences import StoredFenceMachine
from agentruns.testing.machines.stored_replay import StoredReplayMachine
from agentruns.testing.machines.stored_submission import StoredSubmissionMachine
from agentruns.testing.machines.submission import SubmissionMachine

TABLE = Path(__file__).parents[3] / "docs" / "reference" / "mutants.md"
#: A mutant is given so many times the examples that a machine passes without one: it is met in the first of them, as a
#: rule, and what Hypothesis draws depends a little on what else this process has imported.
PATIENCE = 10
#: Machines on the pure domain, with how many examples they pass and how many steps each.
PURE: dict[str, tuple[type[RuleBasedStateMachine], int, int]] = {
    "FenceMachine": (FenceMachine, 30, 20),
    "LifecycleMachine": (LifecycleMachine, 20, 20),
    "ReplayMachine": (ReplayMachine, 12, 8),
    "SubmissionMachine": (SubmissionMachine, 40, 20),
}
#: Those on a server.
STORED: dict[str, tuple[Any, int, int]] = {
    "StoredFenceMachine": (StoredFenceMachine, 8, 25),
    "StoredReplayMachine": (StoredReplayMachine, 6, 5),
    "StoredSubmissionMachine": (StoredSubmissionMachine, 6, 8),
}


def finds(machine: Callable[[], RuleBasedStateMachine], *, examples: int, steps: int) -> bool:
    """Tell whether a machine fails over the examples that it is given each time."""
    try:
        run_machine(machine, examples=examples, steps=steps, is_repeatable=True)
    except Exception:  # noqa: BLE001  # whatever a broken rule leads to
        return True
    return False


def test_a_mutant_of_the_pure_domain_is_caught(mutated: Any) -> None:
    machine, examples, steps = PURE[mutated.machine]
    assert finds(machine, examples=PATIENCE * examples, steps=steps)


def test_a_stored_mutant_is_caught(mutated: Any, world_of: Callable[[str], StoredWorld]) -> None:
    machine, examples, steps = STORED[mutated.machine]
    world = world_of(mutated.machine)
    assert finds(lambda: machine(world), examples=PATIENCE * examples, steps=steps)


@pytest.mark.parametrize("name", PURE)
def test_a_pure_machine_fails_for_no_other_reason(name: str) -> None:
    machine, examples, steps = PURE[name]
    assert not finds(machine, examples=examples, steps=steps)


@pytest.mark.parametrize("name", STORED)
def test_a_machine_on_a_server_fails_for_no_other_reason(name: str, world_of: Callable[[str], StoredWorld]) -> None:
    machine, examples, steps = STORED[name]
    world = world_of(name)
    assert not finds(lambda: machine(world), examples=examples, steps=steps)


def test_the_table_of_the_reference_is_the_list(mutants: tuple[Any, ...]) -> None:
    rows = re.findall(r"^\| ([^|`]+) \| [^|]+ \| `(\w+)` \|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(each.name, each.machine) for each in mutants]


def test_there_is_a_mutant_for_every_machine(mutants: tuple[Any, ...]) -> None:
    assert {each.machine for each in mutants} == PURE.keys() | STORED.keys()
    assert len({each.name for each in mutants}) == len(mutants) >= 12
