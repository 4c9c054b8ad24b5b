"""Sets of scopes."""

from __future__ import annotations

import pickle

import pytest

from agentruns.domain.scalars import Scope
from agentruns.domain.scopes import ScopeSet
from agentruns.errors import InvalidValueError


def test_a_set_has_no_order_and_iterates_in_one() -> None:
    scopes = ScopeSet.of("b", "a", "B")
    assert scopes == ScopeSet([Scope("a"), Scope("b"), Scope("B")])
    assert [scope.text for scope in scopes] == ["B", "a", "b"]
    assert hash(scopes) == hash(ScopeSet.of("B", "b", "a"))
    assert len(scopes) == 3
    assert pickle.loads(pickle.dumps(scopes)) == scopes  # noqa: S301  # our own bytes


def test_membership_inclusion_and_intersection() -> None:
    scopes = ScopeSet.of("a", "b")
    assert Scope("a") in scopes
    assert "a" not in scopes
    assert ScopeSet.of("a") <= scopes
    assert ScopeSet() <= scopes
    assert not scopes <= ScopeSet.of("a")
    assert scopes & ScopeSet.of("b", "c") == ScopeSet.of("b")
    assert scopes.__le__(1) is NotImplemented  # type: ignore[operator]  # on purpose
    assert scopes.__and__(1) is NotImplemented  # type: ignore[operator]  # on purpose


def test_at_most_256_and_nothing_but_scopes() -> None:
    assert len(ScopeSet.of(*(f"s{number}" for number in range(256)))) == 256
    with pytest.raises(InvalidValueError, match="too_long"):
        ScopeSet.of(*(f"s{number}" for number in range(257)))
    with pytest.raises(TypeError):
        ScopeSet(["a"])  # type: ignore[list-item]  # on purpose


def test_repr_counts() -> None:
    assert repr(ScopeSet.of("a", "b")) == "ScopeSet(2 scopes)"


def test_one_text_is_not_taken_letter_by_letter() -> None:
    with pytest.raises(TypeError, match="not as one text"):
        ScopeSet.taken("orders.approve")
    assert ScopeSet.taken(["b", "a"]) == ScopeSet.of("a", "b") == ScopeSet.taken(ScopeSet.of("a", "b"))
