"""The one cattrs converter. Frozen by convention after import: its hooks are the two lists below."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from types import UnionType
from typing import Any, NoReturn, TypeAlias, Union, get_args, get_origin
from uuid import UUID

from cattrs import Converter
from cattrs.gen import make_dict_unstructure_fn, override

from agentruns.domain import wire_structure as structure
from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.encoding import wire_text
from agentruns.domain.scalars import Scalar
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.wire_members import WireMember, array_member_of, is_class, is_record, members_of, tag_of

Predicate: TypeAlias = Callable[[Any], bool]
Unstructure: TypeAlias = Callable[[Any], Any]


def _is(*classes: type) -> Predicate:
    return lambda kind: kind in classes


def _is_below(base: type) -> Predicate:
    return lambda kind: is_class(kind) and issubclass(kind, base)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in {Union, UnionType}


def _is_sequence(kind: Any) -> bool:
    return get_origin(kind) is tuple and get_args(kind)[1:] == (...,)


def _is_set(kind: Any) -> bool:
    return get_origin(kind) is frozenset


def _is_array(kind: Any) -> bool:
    return array_member_of(kind) is not None


def _refuse_key(_key: object) -> NoReturn:
    raise TypeError("a submission key is not written anywhere")


def _record(cls: type, converter: Converter) -> Unstructure:
    overrides: dict[str, Any] = {
        member.attribute: override(
            rename=member.name, omit_if_default=member.may_be_absent, unstruct_hook=_member(member, converter)
        )
        for member in members_of(cls)
    }
    generated: Unstructure = make_dict_unstructure_fn(cls, converter, **overrides)
    tag = tag_of(cls)
    if tag is None:
        return generated
    return lambda record: {tag.name: tag.word, **generated(record)}


def _member(member: WireMember, converter: Converter) -> Unstructure:
    if member.is_decimal:
        return str
    hook: Unstructure = converter.get_unstructure_hook(member.kind)
    return lambda value: None if value is None else hook(value)


def _entries(kind: Any, converter: Converter) -> Unstructure:
    hook = converter.get_unstructure_hook(get_args(kind)[0])
    return lambda values: [hook(each) for each in values]


def _bare_array(kind: Any, converter: Converter) -> Unstructure:
    (member,) = members_of(kind)
    entries = _entries(member.kind, converter)
    return lambda record: entries(getattr(record, member.attribute))


def _sorted_entries(kind: Any, converter: Converter) -> Unstructure:
    entries = _entries(kind, converter)
    return lambda values: entries(sorted(values, key=wire_text))


#: What a type is read with; a later line wins over an earlier one.
STRUCTURE: list[tuple[Predicate, structure.Factory]] = [
    (is_record, structure.record),
    (_is_below(Scalar), structure.scalar),
    (_is_below(Enum), structure.enum),
    (_is_sequence, structure.sequence),
    (_is_set, structure.ordered_set),
    (_is_union, structure.union),
    (_is_array, structure.bare_array),
    (_is(ScopeSet), structure.scope_set),
    (_is(BoundedJson), lambda _kind, _converter: structure.json_value),
    (_is(str, int, bool), lambda kind, _converter: structure.exact(kind)),
    (_is(float, bytes, date, datetime, UUID, Decimal), structure.refused),
]

#: What a type is written with; a later line wins over an earlier one.
UNSTRUCTURE: list[tuple[Predicate, Callable[[Any, Converter], Unstructure]]] = [
    (is_record, _record),
    (_is_below(Scalar), lambda _kind, _converter: str),
    (_is_below(Enum), lambda _kind, _converter: wire_text),
    (_is_sequence, _entries),
    (_is_set, _sorted_entries),
    (_is_union, lambda _kind, converter: converter.unstructure),
    (_is_array, _bare_array),
    (_is(ScopeSet), lambda _kind, _converter: lambda scopes: [scope.text for scope in scopes]),
    (_is(BoundedJson), lambda _kind, _converter: lambda json: json.value),
    (_is(AgentSubmissionKey), lambda _kind, _converter: _refuse_key),
]


def _build() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=False)
    for predicate, read in STRUCTURE:
        converter.register_structure_hook_factory(predicate)(_two(read))
    for kind in (str, int, bool):  # cattrs looks these up by class, before it asks any predicate
        converter.register_structure_hook(kind, structure.exact(kind))
    for never in (float, bytes):
        converter.register_structure_hook(never, structure.refused(never, converter))
    for predicate, write in UNSTRUCTURE:
        converter.register_unstructure_hook_factory(predicate)(_two(write))
    return converter


def _two(factory: Callable[[Any, Converter], Any]) -> Callable[[Any, Converter], Any]:
    """Give a factory the two positional parameters by which cattrs knows that it wants the converter."""

    def hook(kind: Any, converter: Converter) -> Any:
        return factory(kind, converter)

    return hook


CONVERTER = _build()
