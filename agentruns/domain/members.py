"""Checks of a record's members against what its class declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeAlias, Union, get_args, get_origin, get_type_hints

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
    check = _CHECKS.get(kind) or _declare(kind)
    check(record)


def check_bound(record: object, name: str, lowest: int, highest: int) -> None:
    """Refuse a number outside ``lowest``..``highest``.

    Raises:
        InvalidValueError: ``out_of_range``; ``path`` names the member.
    """
    if not lowest <= int(getattr(record, name)) <= highest:
        raise InvalidValueError(type_name=type(record).__name__, reason="out_of_range", path=(name,))


def _wrong_type(record: object, *path: str | int) -> InvalidValueError:
    return InvalidValueError(type_name=type(record).__name__, reason="wrong_type", path=path)


def _check_entries(record: object, name: str, values: tuple[object, ...], types: _Types) -> None:
    for index, entry in enumerate(values):
        if entry.__class__ not in types:
            raise _wrong_type(record, name, index)


#: The check of each class, once the first of its records was checked.
_CHECKS: dict[type, Callable[[object], None]] = {}


def _declare(cls: type) -> Callable[[object], None]:
    hints = get_type_hints(cls)
    members = [
        _Member(each.name, frozenset(map(_class, _alternatives(hints[each.name]))), _entries(hints[each.name]))
        for each in fields(cls)
    ]
    _CHECKS[cls] = _written(members)
    return _CHECKS[cls]


def _written(members: Sequence[_Member]) -> Callable[[object], None]:
    """Write a check out, as attrs writes constructors: a loop over the members takes seven times as long."""
    lines, scope = ["def check(record):", "    pass"], dict[str, Any](wrong=_wrong_type, check_entries=_check_entries)
    for name, types, entries in members:
        scope |= {f"types_of_{name}": types, f"entries_of_{name}": entries}
        lines += [f"    if record.{name}.__class__ not in types_of_{name}:", f"        raise wrong(record, '{name}')"]
        if tuple in types:
            lines += [
                f"    if record.{name}.__class__ is tuple:",
                f"        check_entries(record, '{name}', record.{name}, entries_of_{name})",
            ]
    exec("\n".join(lines), scope)  # noqa: S102  # of the names that the class itself declares
    check: Callable[[object], None] = scope["check"]
    return check


def _alternatives(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


def _class(hint: object) -> type:
    kind = get_origin(hint) or hint
    return kind if isinstance(kind, type) else NoneType


def _entries(hint: object) -> _Types:
    tuples = [each for each in _alternatives(hint) if get_origin(each) is tuple]
    return frozenset(_class(entry) for each in tuples for entry in _alternatives(get_args(each)[0]))
