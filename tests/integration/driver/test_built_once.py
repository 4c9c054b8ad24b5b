"""What is fused is built once: planning what follows needs no commit, and a plan is made once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ledger import state as ledger_state
from agentruns.domain.ledger.superstep import SuperstepDraft
from agentruns.runtime.agent_loop import AgentLoopOutcome
from agentruns.testing.drives import DriveWorld, chain

InWorld = Callable[..., None]


async def step(_context: Any) -> dict[str, int]:
    return {"seen": 1}


async def last(_context: Any) -> Finish:
    return Finish({"seen": 1})


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[None]:
    calls: list[None] = []
    original = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(None)
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_a_chain_builds_a_commit_for_each_that_it_sends_and_plans_each_barrier_once(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = counted(monkeypatch, SuperstepDraft, "build")
    plans = counted(monkeypatch, ledger_state, "plan_barrier")

    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        assert (await world.driven(run_id)).outcome is AgentLoopOutcome.SUCCEEDED
        # The first start, then a completion for each node; the success is a draft of another kind.
        assert (len(builds), len(plans)) == (1 + 3, 3)

    in_world(work, chain(a=step, b=step, c=last), lease=timedelta(minutes=1))
