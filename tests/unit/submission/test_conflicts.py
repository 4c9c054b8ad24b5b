"""A conflict says what to do about the kind of thing that it is about."""

from __future__ import annotations

import pytest

from agentruns.errors import IdConflictError


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("event", "use a new id for new work"),
        ("attempt", "use a new id for new work"),
        ("invocation", "use a new id for new work"),
        ("reservation", "use a new id for new work"),
        ("graph", "publish a changed graph under a new version"),
        ("fairness_policy", "use another shard id for another policy"),
    ],
)
def test_the_advice_follows_the_kind(kind: str, advice: str) -> None:
    error = IdConflictError(kind=kind, id="x")
    assert str(error) == f"the id stands for other content (kind={kind}, id=x); {advice}"
