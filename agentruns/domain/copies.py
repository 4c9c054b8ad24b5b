"""Copies of records that were checked when they were made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from attrs import fields, frozen

T = TypeVar("T")


@frozen
class _Slots:
    """Copy all members of a slotted class at once, and set each of them past the guard of frozen records."""

    copy: Callable[[Any], Any]
    write: Mapping[str, Callable[[Any, Any], None]]


#: The slots of each class, once the first of its records was copied.
_SLOTS: Final[dict[type, _Slots]] = {}


def copy_with(record: T, changes: Mapping[str, Any]) -> T:
    """Copy a frozen record with other members, as ``evolve`` does, but without its constructor's checks.

    Only for members whose values the caller knows to be valid beside the others. What a record keeps outside equality
    is left behind.
    """
    kind: type[Any] = type(record)
    slots = _SLOTS.get(kind) or _declare(kind)
    made: T = slots.copy(record)
    for name, value in changes.items():
        slots.write[name](made, value)
    return made


def _declare(kind: type[Any]) -> _Slots:
    write = {each.name: getattr(kind, each.name).__set__ for each in fields(kind)}
    _SLOTS[kind] = _Slots(_copier(kind, write), write)
    return _SLOTS[kind]


def _copier(kind: type[Any], write: Mapping[str, Callable[[Any, Any], None]]) -> Callable[[Any], Any]:
    """Write a function of one statement for each member, as attrs writes constructors: a loop takes twice as long."""
    statements = [f"    write_{name}(made, record.{name})\n" for name in write]
    scope: dict[str, Any] = {"kind": kind, "new": object.__new__}
    scope |= {f"write_{name}": method for name, method in write.items()}
    source = f"def copied(record):\n    made = new(kind)\n{''.join(statements)}    return made\n"
    exec(source, scope)  # noqa: S102  # of the names that the class itself declares
    copied: Callable[[Any], Any] = scope["copied"]
    return copied
