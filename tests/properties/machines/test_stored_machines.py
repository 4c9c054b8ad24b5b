"""The machines on a real server: few examples in the ordinary profile, more in the nightly one."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings

from agentruns.testing.machines.stored import StoredWorld
from agentruns.testing.machines.stored_fences import StoredFenceMachine
from agentruns.testing.machines.stored_lifecycle import StoredLifecycleMachine
from agentruns.testing.machines.stored_replay import StoredReplayMachine
from agentruns.testing.machines.stored_submission import StoredSubmissionMachine

PutThrough = Callable[..., None]

#: An example on a server costs as much as many on the pure domain.
_EXAMPLES = 200 if settings.get_current_profile_name() == "nightly" else max(6, settings().max_examples // 10)


def test_R1_submissions(stored_world: StoredWorld, put_through: PutThrough) -> None:
    put_through(lambda: StoredSubmissionMachine(stored_world), examples=_EXAMPLES, steps=12)


def test_R1_fences(frozen_world: StoredWorld, put_through: PutThrough) -> None:
    put_through(lambda: StoredFenceMachine(frozen_world), examples=_EXAMPLES, steps=30)


def test_R1_replays(stored_world: StoredWorld, put_through: PutThrough) -> None:
    put_through(lambda: StoredReplayMachine(stored_world), examples=_EXAMPLES, steps=8)


def test_R1_lifecycles(frozen_world: StoredWorld, put_through: PutThrough) -> None:
    put_through(lambda: StoredLifecycleMachine(frozen_world), examples=_EXAMPLES, steps=20)
