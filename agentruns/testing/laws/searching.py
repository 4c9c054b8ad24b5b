"""Search for what breaks a law, and for the fewest steps to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from agentruns.testing.laws.broken import LawBrokenError


def search(try_once: Callable[[st.DataObject], LawBrokenError | None], *, max_examples: int) -> None:
    """Try a law many times, the same way each time it is called; no random seed and no stored examples are involved.

    Raises:
        LawBrokenError: a try has broken the law; of all that did, the one of the fewest steps.
    """
    shortest: list[LawBrokenError] = []

    @settings(
        max_examples=max_examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def hold(data: st.DataObject) -> None:
        broken = try_once(data)
        if broken is not None:
            shortest.append(broken)
            raise broken

    # What Hypothesis adds to the error says how it has drawn; the steps say it better.
    with suppress(LawBrokenError, Flaky):
        hold()
    if shortest:
        raise min(reversed(shortest), key=lambda each: len(each.steps)) from None
