"""What each record class declares for the wire: its members in their order, and the tag of a union's variant."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import attrs

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.json_limits import RECORD_MAX_BYTES, JsonLimits
from agentruns.domain.scalars import Scalar
from agentruns.domain.scopes import ScopeSet
from agentruns.errors import InvariantError


@attrs.frozen(kw_only=True)
class WireMember:
    """Say how a member of a record stands on the wire.

    Attributes:
        attribute: its name in the class.
        name: its name on the wire.
        kind: its type, without ``None``.
        may_be_absent: left out where the value is ``None``.
        is_nullable: always present, ``null`` where the value is ``None``.
        is_required: the class gives no default.
        is_decimal: an ``int`` that is written as a canonical decimal string.
        limits: of its JSON, where it is some.
    """

    attribute: str
    name: str
    kind: Any
    may_be_absent: bool
    is_nullable: bool
    is_required: bool
    is_decimal: bool
    limits: JsonLimits

    @property
    def refuses_null(self) -> bool:
        """Whether ``null`` would be a second spelling of absence. A JSON value may be ``null`` itself."""
        return self.may_be_absent and self.kind is not BoundedJson


@cache
def members_of(cls: type) -> tuple[WireMember, ...]:
    """List the wire members of a record class, in the order of their declaration."""
    attrs.resolve_types(cls)
    return tuple(_member(cls, attribute) for attribute in attrs.fields(cls) if attribute.init)


def _member(cls: type, attribute: attrs.Attribute[Any]) -> WireMember:
    optional, kind = without_none(attribute.type)
    nullable = bool(attribute.metadata.get("nullable"))
    required = attribute.default is attrs.NOTHING
    if optional and not nullable and attribute.default is not None:
        raise InvariantError(reason=f"{cls.__name__}.{attribute.name} is optional without the default None")
    return WireMember(
        attribute=attribute.name,
        name=attribute.metadata.get("name", attribute.name),
        kind=kind,
        may_be_absent=optional and not nullable,
        is_nullable=nullable,
        is_required=required or nullable,
        is_decimal=bool(attribute.metadata.get("decimal")),
        limits=attribute.metadata.get("limits", JsonLimits.DEFAULT),
    )


def array_member_of(cls: Any) -> WireMember | None:
    """Find the only member of a class that stands on the wire as that member's array: it says ``is_array``."""
    if not getattr(cls, "is_array", False):
        return None
    (member,) = members_of(cls)
    return member


def is_class(kind: Any) -> bool:
    """Tell a class from a generic type such as ``tuple[T, ...]``."""
    return isinstance(kind, type) and get_origin(kind) is None


def is_record(kind: Any) -> bool:
    """Tell the classes that stand on the wire as objects of their members."""
    return is_class(kind) and attrs.has(kind) and not issubclass(kind, Scalar | ScopeSet | BoundedJson)


def without_none(kind: Any) -> tuple[bool, Any]:
    """Take ``None`` out of a union of types, and say whether it was there."""
    if get_origin(kind) not in {Union, UnionType}:
        return False, kind
    rest = [each for each in get_args(kind) if each is not NoneType]
    return len(rest) < len(get_args(kind)), reduce(or_, rest)


@attrs.frozen
class Tag:
    """Mark a variant of a union: the member that every variant has, and this one's word."""

    name: str
    word: str


_VARIANTS: dict[frozenset[type], tuple[str, dict[str, type]]] = {}
_TAGS: dict[type, Tag] = {}


def register_union(union: UnionType, *, tag: str, variants: Mapping[str, type]) -> None:
    """Declare a tagged union, once, where its last variant is defined.

    The tag belongs to the variant: it stands in the wire form of the variant alone, too, and is required there.
    """
    known = frozenset(variants.values())
    if known != frozenset(get_args(union)) or len(known) != len(variants) or not known.isdisjoint(_TAGS):
        raise InvariantError(reason="a union's variants are declared once, each with one word")
    _VARIANTS[known] = (tag, dict(variants))
    _TAGS.update({variant: Tag(tag, word) for word, variant in variants.items()})


def tag_of(cls: type) -> Tag | None:
    """Find the tag of a variant; another class has none."""
    return _TAGS.get(cls)


def variants_of(kind: Any) -> tuple[str, dict[str, type]] | None:
    """Find the tag's name and the variants of a union, ``None`` among its types or not."""
    if get_origin(kind) not in {Union, UnionType}:
        return None
    return _VARIANTS.get(frozenset(each for each in get_args(kind) if each is not NoneType))


def max_bytes_of(cls: Any) -> int:
    """Read the byte bound of a record class or of a union's widest variant: ``max_wire_bytes``, else 2 MiB."""
    if (found := variants_of(cls)) is not None:
        return max(map(max_bytes_of, found[1].values()))
    bound: int = getattr(cls, "max_wire_bytes", RECORD_MAX_BYTES)
    return bound
