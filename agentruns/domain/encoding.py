"""Canonical bytes of records, spliced from those of their members; the plan of a class is made once."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, NoReturn, TypeAlias, get_args, get_origin

import attrs

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.numbers import Counter
from agentruns.domain.scalars import Scalar, TextScalar
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.splice import NULL, array, joined_object, member_order, member_prefix, quoted
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.wire_members import WireMember, array_member_of, is_class, members_of, tag_of, without_none

Encoder: TypeAlias = Callable[[Any], bytes]


def record_bytes(record: object) -> bytes:
    """Encode a record from its members, without making a tree of it.

    Raises:
        InvalidValueError: ``too_large`` for the bound that its class states.
    """
    cls: Any = type(record)
    return _record_encoder(cls)(record)


@cache
def encoder_of(kind: Any) -> Encoder:
    """Choose how values of a declared type are encoded."""
    if is_class(kind):
        return _class_encoder(kind)
    origin = get_origin(kind)
    if origin is tuple:
        entry = encoder_of(get_args(kind)[0])
        return lambda values: array(map(entry, values))
    if origin is frozenset:
        return _set_encoder(encoder_of(get_args(kind)[0]))
    return _by_class


def _by_class(value: Any) -> bytes:
    cls: Any = type(value)
    return encoder_of(cls)(value)


def _class_encoder(cls: type) -> Encoder:
    if cls in _ENCODERS:
        return _ENCODERS[cls]
    if issubclass(cls, Scalar):
        if issubclass(cls, TextScalar):
            return _escaped if cls.needs_escape else _quoted_text
        return _quoted_number if issubclass(cls, Counter) else _quoted
    if issubclass(cls, Enum):
        return _enum_encoder(cls)
    return _attrs_encoder(cls) if attrs.has(cls) else canonical_bytes


def _attrs_encoder(cls: type) -> Encoder:
    if (bare := array_member_of(cls)) is not None:
        return _bare_array_encoder(bare)
    return _kept if getattr(cls, "keeps_bytes", False) else _record_encoder(cls)


def _kept(record: Any) -> bytes:
    data: bytes = record.canonical
    return data


def _quoted(value: object) -> bytes:
    return b'"%b"' % str(value).encode("ascii")


def _quoted_text(value: TextScalar) -> bytes:
    return b'"%b"' % value.text.encode()


def _quoted_number(value: Counter) -> bytes:
    return b'"%d"' % value.value


def _escaped(value: object) -> bytes:
    return canonical_bytes(str(value))


def _refuse_key(_key: object) -> NoReturn:
    raise TypeError("a submission key is not written anywhere")


_ENCODERS: dict[type, Encoder] = {
    AgentSubmissionKey: _refuse_key,
    BoundedJson: lambda value: value.data,
    ScopeSet: lambda scopes: array(map(_quoted_text, scopes)),
}


def _enum_encoder(cls: type[Enum]) -> Encoder:
    words = {each: quoted(each.value) for each in cls}
    return words.__getitem__


def _bare_array_encoder(member: WireMember) -> Encoder:
    entries, attribute = encoder_of(member.kind), member.attribute
    return lambda record: entries(getattr(record, attribute))


def _set_encoder(entry: Encoder) -> Encoder:
    return lambda values: array(map(entry, sorted(values, key=wire_text)))


def wire_text(value: object) -> str:
    """Write a scalar or an enum's member as it stands on the wire, to sort by."""
    return value.value if isinstance(value, Enum) else str(value)


@cache
def _record_encoder(cls: type) -> Encoder:
    if (spliced := getattr(cls, "_spliced", None)) is not None:
        method: Encoder = spliced
        return method
    plan = _plan(cls)
    max_bytes: int | None = getattr(cls, "max_wire_bytes", None)

    def encode(record: object) -> bytes:
        parts = []
        for attribute, prefix, encoder, may_be_absent in plan:
            value = getattr(record, attribute) if attribute else None
            if value is not None or not may_be_absent:
                parts.append(prefix + encoder(value))
        return joined_object(parts, max_bytes=max_bytes, owner=cls.__name__)

    return encode


def _plan(cls: type) -> list[tuple[str, bytes, Encoder, bool]]:
    """Put the members of a class into canonical order, a variant's tag among them."""
    steps = {
        member.name: (member.attribute, member_prefix(member.name), _member_encoder(member), member.may_be_absent)
        for member in members_of(cls)
    }
    if (tag := tag_of(cls)) is not None:
        word = quoted(tag.word)
        steps[tag.name] = ("", member_prefix(tag.name), lambda _: word, False)
    return [steps[name] for name in member_order(steps)]


def _member_encoder(member: WireMember) -> Encoder:
    encoder = _quoted if member.is_decimal else encoder_of(without_none(member.kind)[1])
    if member.is_nullable:
        return lambda value: NULL if value is None else encoder(value)
    return encoder
