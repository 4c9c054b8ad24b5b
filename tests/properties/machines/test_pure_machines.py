"""The machines on the pure domain: the library's rules without a database, very often in the nightly profile."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings

from agentruns.testing.machines.fences import FenceMachine
from agentruns.testing.machines.lifecycle import LifecycleMachine
from agentruns.testing.machines.replay import ReplayMachine
from agentruns.testing.machines.submission import SubmissionMachine

PutThrough = Callable[..., None]

#: The nightly profile gives machines more than other laws, which are many.
_EXAMPLES = 2_000 if settings.get_current_profile_name() == "nightly" else settings().max_examples


def test_submissions(put_through: PutThrough) -> None:
    put_through(SubmissionMachine, examples=_EXAMPLES, steps=30)


def test_fences(put_through: PutThrough) -> None:
    put_through(FenceMachine, examples=_EXAMPLES, steps=25)


def test_lifecycles(put_through: PutThrough) -> None:
    put_through(LifecycleMachine, examples=_EXAMPLES // 2, steps=25)


def test_replays(put_through: PutThrough) -> None:
    put_through(ReplayMachine, examples=_EXAMPLES // 2, steps=15)
