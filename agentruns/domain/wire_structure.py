"""The hooks that make records from trees: exact types, closed objects, absence instead of ``null``."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from enum import Enum
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias, get_args

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, override

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.encoding import wire_text
from agentruns.domain.json_limits import MIB, JsonLimits
from agentruns.domain.numbers import INT64_MAX, parse_decimal
from agentruns.domain.scalars import Scalar, Scope
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.wire_members import Tag, WireMember, members_of, tag_of, variants_of
from agentruns.errors import InvalidValueError, InvariantError

Structure: TypeAlias = Callable[[Any, Any], Any]
Factory: TypeAlias = Callable[[Any, Converter], Structure]

#: Whether the tree comes from bytes of ours, so that the limits of its JSON were checked when that entered.
AS_READ: ContextVar[bool] = ContextVar("as_read", default=False)

_READ_LIMITS = JsonLimits.record(64 * MIB)


def wire_error(kind: Any, reason: str, *path: str | int) -> InvalidValueError:
    """Make the error of one place; the outer call adds the way to it."""
    return InvalidValueError(type_name=kind_name(kind), reason=reason, path=path)


def kind_name(kind: Any) -> str:
    """Name a class, or a union by its variants."""
    if (found := variants_of(kind)) is not None:
        return " | ".join(variant.__name__ for variant in found[1].values())
    name: str = kind.__name__
    return name


def exact(kind: type) -> Structure:
    """Accept values of exactly one class."""

    def structure(value: Any, _kind: Any) -> Any:
        if type(value) is not kind:
            raise wire_error(kind, "wrong_type")
        return value

    return structure


def refused(kind: Any, _converter: Converter) -> Structure:
    """Accept nothing: no record has such a member."""

    def structure(_value: Any, _kind: Any) -> NoReturn:
        raise wire_error(kind, "wrong_type")

    return structure


def scalar(kind: type[Scalar], _converter: Converter) -> Structure:
    """Read a scalar from its text."""
    parse = kind.parse

    def structure(value: Any, _kind: Any) -> Any:
        if type(value) is not str:
            raise wire_error(kind, "wrong_type")
        return parse(value)

    return structure


def enum(kind: type[Enum], _converter: Converter) -> Structure:
    """Read a member of an enum by its value, never by its name."""
    words = {each.value: each for each in kind}

    def structure(value: Any, _kind: Any) -> Any:
        if type(value) is not str:
            raise wire_error(kind, "wrong_type")
        if value not in words:
            raise wire_error(kind, "invalid_value")
        return words[value]

    return structure


def sequence(kind: Any, converter: Converter) -> Structure:
    """Read an array entry by entry."""
    entry = get_args(kind)[0]
    hook = converter.get_structure_hook(entry)

    def structure(value: Any, _kind: Any) -> Any:
        if type(value) is not list:
            raise wire_error(kind, "not_an_array")
        return tuple([hook(each, entry) for each in value])

    return structure


def ordered_set(kind: Any, converter: Converter) -> Structure:
    """Read an array that is strictly ascending; nothing is repaired."""
    entries = sequence(kind, converter)

    def structure(value: Any, _kind: Any) -> Any:
        found = entries(value, kind)
        for before, after in pairwise(map(wire_text, found)):
            if before >= after:
                raise wire_error(kind, "duplicate" if before == after else "unsorted")
        return frozenset(found)

    return structure


def bare_array(kind: Any, converter: Converter) -> Structure:
    """Read a class that stands as the array of its only member; its constructor checks the order."""
    (member,) = members_of(kind)
    entries = sequence(member.kind, converter)
    return lambda value, _: kind(entries(value, member.kind))


def scope_set(_kind: Any, converter: Converter) -> Structure:
    """Read a set of scopes."""
    scopes = ordered_set(frozenset[Scope], converter)
    return lambda value, kind: ScopeSet(scopes(value, kind))


def union(kind: Any, converter: Converter) -> Structure:
    """Read the tag, then the variant that it names."""
    found = variants_of(kind)
    if found is None:
        raise InvariantError(reason=f"{kind} is no registered union")
    tag, variants = found

    def structure(value: Any, _kind: Any) -> Any:
        variant = variants[read_tag(kind, value, tag, variants)]
        return converter.get_structure_hook(variant)(value, variant)

    return structure


def read_tag(kind: Any, value: Any, tag: str, known: Any) -> str:
    """Read the tag of a hostile object.

    Raises:
        InvalidValueError: no object, no tag, no text, or no word that is known.
    """
    if type(value) is not dict:
        raise wire_error(kind, "not_an_object")
    if tag not in value:
        raise wire_error(kind, "missing_member", tag)
    word = value[tag]
    if type(word) is not str:
        raise wire_error(kind, "wrong_type", tag)
    if word not in known:
        raise wire_error(kind, "unknown_kind", tag)
    return word


def record(cls: type, converter: Converter) -> Structure:
    """Read a record: an object with every required member and no unknown one."""
    members = members_of(cls)
    required = [member.name for member in members if member.is_required]
    never_null = [member.name for member in members if member.refuses_null]
    tag = tag_of(cls)
    overrides: dict[str, Any] = {
        member.attribute: override(rename=member.name, struct_hook=member_hook(member, converter)) for member in members
    }
    generated: Callable[[Any, Any], Any] = make_dict_structure_fn(
        cls, converter, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=False, **overrides
    )

    def structure(value: Any, _kind: Any) -> Any:
        value = _untagged(cls, value, tag)
        for name in required:
            if name not in value:
                raise wire_error(cls, "missing_member", name)
        for name in never_null:
            if name in value and value[name] is None:
                raise wire_error(cls, "unexpected_null", name)
        return generated(value, cls)

    return structure


def _untagged(cls: type, value: Any, tag: Tag | None) -> Any:
    if tag is not None:
        read_tag(cls, value, tag.name, {tag.word})
        return {name: member for name, member in value.items() if name != tag.name}
    if type(value) is not dict:
        raise wire_error(cls, "not_an_object")
    return value


def member_hook(member: WireMember, converter: Converter) -> Structure:
    """Choose how a member is read: by its type, but for JSON with its limits, decimals and nullable members."""
    hook = _hook_of_kind(member, converter)
    if not member.is_nullable:
        return hook
    return lambda value, kind: None if value is None else hook(value, kind)


def _hook_of_kind(member: WireMember, converter: Converter) -> Structure:
    if member.kind is BoundedJson:
        return lambda value, _: BoundedJson.of(value, _READ_LIMITS if AS_READ.get() else member.limits)
    if member.is_decimal:
        return _decimal
    hook: Structure = converter.get_structure_hook(member.kind)
    return hook


def _decimal(value: Any, _kind: Any) -> int:
    if type(value) is not str:
        raise wire_error(int, "wrong_type")
    return parse_decimal(int, value, highest=INT64_MAX)


def json_value(value: Any, _kind: Any) -> BoundedJson:
    """Read JSON that is no member itself: an entry of an array."""
    return BoundedJson.of(value, _READ_LIMITS if AS_READ.get() else JsonLimits.DEFAULT)
