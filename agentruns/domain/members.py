"""Checks of a record's members against what its class declares."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

from attrs import fields

from agentruns.errors import InvalidValueError

_Types: TypeAlias = frozenset[type]


class _Member(NamedTuple):
    """Say which classes a member may have, exactly, and those of its entries if it is a tuple."""

    name: str
    types: _Types
    entries: _Types


def check_members(record: object) -> None:
    """Refuse a record with a member of another class than it declares. Nothing is converted.

    Raises:
        InvalidValueError: ``wrong_type``; ``path`` leads to the member.
    """
    kind = type(record)
    for name, types, entries in _MEMBERS.get(kind) or _declare(kind):
        value = getattr(record, name)
        if value.__class__ not in types:
            raise _wrong_type(record, name)
        if value.__class__ is tuple:
            for index, entry in enumerate(value):
                if entry.__class__ not in entries:
                    raise _wrong_type(record, name, index)


def check_bound(record: object, name: str, lowest: int, highest: int) -> None:
    """Refuse a number outside ``lowest``..``highest``.

    Raises:
        InvalidValueError: ``out_of_range``; ``path`` names the member.
    """
    if not lowest <= int(getattr(record, name)) <= highest:
        raise InvalidValueError(type_name=type(record).__name__, reason="out_of_range", path=(name,))


def _wrong_type(record: object, *path: str | int) -> InvalidValueError:
    return InvalidValueError(type_name=type(record).__name__, reason="wrong_type", path=path)


#: What each class declares, once the first of its records was checked.
_MEMBERS: dict[type, tuple[_Member, ...]] = {}


def _declare(cls: type) -> tuple[_Member, ...]:
    hints = get_type_hints(cls)
    _MEMBERS[cls] = tuple(
        _Member(each.name, frozenset(map(_class, _alternatives(hints[each.name]))), _entries(hints[each.name]))
        for each in fields(cls)
    )
    return _MEMBERS[cls]


def _alternatives(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


def _class(hint: object) -> type:
    kind = get_origin(hint) or hint
    return kind if isinstance(kind, type) else NoneType


def _entries(hint: object) -> _Types:
    tuples = [each for each in _alternatives(hint) if get_origin(each) is tuple]
    return frozenset(_class(entry) for each in tuples for entry in _alternatives(get_args(each)[0]))
