"""Sets of scopes: what a principal was granted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Self

from attrs import field, frozen

from agentruns.domain.scalars import Scope, refuse


def _frozen(scopes: Iterable[Scope]) -> frozenset[Scope]:
    return scopes if isinstance(scopes, frozenset) else frozenset(scopes)


@frozen(repr=False, weakref_slot=False)
class ScopeSet:
    """Hold at most 256 distinct scopes. On the wire an array, sorted by bytes.

    Attributes:
        scopes: the members; iterating the set itself gives them sorted.
    """

    scopes: frozenset[Scope] = field(default=frozenset(), converter=_frozen)

    largest: ClassVar[int] = 256

    def __attrs_post_init__(self) -> None:
        if not all(type(scope) is Scope for scope in self.scopes):
            raise TypeError("ScopeSet takes Scope")
        if len(self.scopes) > self.largest:
            raise refuse(self, "too_long")

    @classmethod
    def of(cls, *texts: str) -> Self:
        """Make a set from texts, in any order."""
        return cls(frozenset(map(Scope, texts)))

    @classmethod
    def taken(cls, scopes: ScopeSet | Iterable[str]) -> ScopeSet:
        """Take a set, or its texts; one text alone is a slip, and would be taken letter by letter.

        Raises:
            TypeError: it is one text.
        """
        if isinstance(scopes, str):
            raise TypeError("pass scopes as several texts, such as ('orders.approve',), not as one text")
        return scopes if isinstance(scopes, ScopeSet) else cls.of(*scopes)

    def __iter__(self) -> Iterator[Scope]:
        return iter(sorted(self.scopes))

    def __len__(self) -> int:
        return len(self.scopes)

    def __contains__(self, scope: object) -> bool:
        return scope in self.scopes

    def __le__(self, other: ScopeSet) -> bool:
        return self.scopes <= other.scopes if isinstance(other, ScopeSet) else NotImplemented

    def __and__(self, other: ScopeSet) -> ScopeSet:
        return ScopeSet(self.scopes & other.scopes) if isinstance(other, ScopeSet) else NotImplemented

    def __repr__(self) -> str:
        return f"ScopeSet({len(self.scopes)} scopes)"
