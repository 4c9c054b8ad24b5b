"""Where a tree is not what a class expects: found by a second reading, after the first has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias, get_args, get_origin

import attrs
from cattrs.errors import ForbiddenExtraKeysError

from agentruns.domain.converter import CONVERTER
from agentruns.domain.scalars import Scope
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.wire_members import array_member_of, is_record, members_of, variants_of
from agentruns.domain.wire_structure import kind_name, member_hook
from agentruns.errors import InvalidValueError

#: What a hook, a validator or cattrs raises because of a value.
REFUSALS = (InvalidValueError, ForbiddenExtraKeysError, TypeError, ValueError)

_Part: TypeAlias = tuple[str | int, Any, Any, Callable[[Any], object]]


def locate(tree: object, kind: Any) -> InvalidValueError:
    """Make the one error of a tree that was refused: the class, the way to the innermost place, and the reason."""
    found = _fault(tree, kind, partial(CONVERTER.structure, cl=kind)) or InvalidValueError(
        type_name="", reason="invalid_value"
    )
    return attrs.evolve(found, type_name=kind_name(kind))


def _fault(value: object, kind: Any, read: Callable[[Any], object]) -> InvalidValueError | None:
    try:
        read(value)
    except REFUSALS as error:
        own = _as_invalid(error)
    else:
        return None
    for step, part, part_kind, part_read in _parts(value, kind):
        inner = _fault(part, part_kind, part_read)
        if inner is not None:
            return attrs.evolve(inner, path=(step, *inner.path))
    return own


def _as_invalid(error: Exception) -> InvalidValueError:
    """Copy an error of ours without its traceback; of another keep nothing, since it may quote the value."""
    if isinstance(error, InvalidValueError):
        return attrs.evolve(error)
    if isinstance(error, ForbiddenExtraKeysError):
        return InvalidValueError(type_name="", reason="unknown_member", count=len(error.extra_fields))
    return InvalidValueError(type_name="", reason="invalid_value")


def _parts(value: object, kind: Any) -> Iterator[_Part]:
    """Walk one step down, by declared members and indices only."""
    if isinstance(value, list):
        entry = _entry(kind)
        if entry is not None:
            read = partial(CONVERTER.structure, cl=entry)
            yield from ((index, each, entry, read) for index, each in enumerate(value))
    elif isinstance(value, dict):
        yield from _members(value, _variant(value, kind))


def _entry(kind: Any) -> Any:
    """Name the type of an array's entries, where the declared type is an array."""
    if kind is ScopeSet:
        return Scope
    bare = array_member_of(kind)
    declared = kind if bare is None else bare.kind
    return get_args(declared)[0] if get_origin(declared) in {tuple, frozenset} else None


def _variant(value: dict[str, object], kind: Any) -> Any:
    found = variants_of(kind)
    if found is None:
        return kind
    word = value.get(found[0])
    return found[1].get(word) if isinstance(word, str) else None


def _members(value: dict[str, object], kind: Any) -> Iterator[_Part]:
    for member in members_of(kind) if is_record(kind) else ():
        if member.name in value and not (value[member.name] is None and member.refuses_null):
            hook = member_hook(member, CONVERTER)
            yield member.name, value[member.name], member.kind, partial(_read, hook, member.kind)


def _read(hook: Callable[[Any, Any], object], kind: Any, value: object) -> object:
    return hook(value, kind)
