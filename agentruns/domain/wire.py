"""Records to and from their wire form, and everything that a module of records needs to take part in it.

A record is an ``attrs.frozen(kw_only=True)`` class. It needs no registration if its members are scalars, enums,
``str``, ``bool``, ``tuple[T, ...]``, ``frozenset[T]`` of scalars or enums (an ascending array), ``ScopeSet``,
``BoundedJson``, records, or registered unions of records; each of them optional, with the default ``None``, which is
left out.

- ``metadata={"nullable": True}``: always present, ``null`` where the value is ``None``.
- ``metadata={"limits": JsonLimits.MAXIMUM}``: of a ``BoundedJson``; ``JsonLimits.DEFAULT`` otherwise.
- ``metadata={"decimal": True}``: an ``int`` that is written as a canonical decimal string.
- ``metadata={"name": "class"}``: the name on the wire, where it can be no name of Python.
- ``max_wire_bytes: ClassVar[int]``: the bound of the record; 2 MiB otherwise.
- The order of a tuple is the constructor's to check: ``from_wire`` runs it.
- ``is_array: ClassVar[bool] = True``: the class stands as the array of its only member, which is positional.
- :func:`register_union` declares a tagged union. :class:`KeptBytes` is the base of records that are used repeatedly.
- ``init=False`` fields are not on the wire. A class may define ``_spliced()`` to write its canonical bytes itself.
"""

from __future__ import annotations

from types import UnionType
from typing import Any, TypeVar, overload

from agentruns.domain.canonical import JsonTree, dump_json, parse_canonical, parse_json
from agentruns.domain.converter import CONVERTER
from agentruns.domain.encoding import encoder_of
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.kept import KeptBytes, keep_bytes
from agentruns.domain.wire_locate import REFUSALS, locate
from agentruns.domain.wire_members import max_bytes_of, register_union
from agentruns.domain.wire_structure import AS_READ
from agentruns.errors import InvalidValueError

__all__ = ["KeptBytes", "decode", "encode", "from_json", "from_wire", "register_union", "to_json", "to_wire"]

RecordT = TypeVar("RecordT")


def to_wire(record: object) -> JsonTree:
    """Write a record as a fresh tree of plain JSON."""
    tree: JsonTree = CONVERTER.unstructure(record)
    return tree


@overload
def from_wire(tree: JsonTree, cls: type[RecordT]) -> RecordT: ...
@overload
def from_wire(tree: JsonTree, cls: UnionType) -> Any: ...
def from_wire(tree: JsonTree, cls: Any) -> Any:
    """Read a record, or a variant of a registered union; its constructor checks it.

    Raises:
        InvalidValueError: one, with the class, the way to the place by declared members and indices, and the reason.
            It has no cause or context, since those may quote the value.
    """
    try:
        return CONVERTER.structure(tree, cls)
    except REFUSALS:
        pass
    raise locate(tree, cls)


def encode(record: object) -> bytes:
    """Write the canonical bytes of a record: those it keeps, or spliced from its members.

    Raises:
        InvalidValueError: ``too_large`` for the bound of its class.
    """
    cls: Any = type(record)
    data = encoder_of(cls)(record)
    if len(data) > max_bytes_of(cls):
        raise InvalidValueError(type_name=cls.__name__, reason="too_large")
    return data


@overload
def decode(data: bytes, cls: type[RecordT]) -> RecordT: ...
@overload
def decode(data: bytes, cls: UnionType) -> Any: ...
def decode(data: bytes, cls: Any) -> Any:
    """Read a record from canonical bytes, and let it keep them.

    JSON inside was bounded when it entered and is bounded by the bytes alone.

    Raises:
        InvalidJsonError: the bytes are not canonical, or beyond the bound of the class.
        InvalidValueError: as :func:`from_wire`.
    """
    tree = parse_canonical(data, JsonLimits.record(max_bytes_of(cls)))
    token = AS_READ.set(True)
    try:
        record = from_wire(tree, cls)
    finally:
        AS_READ.reset(token)
    if isinstance(record, KeptBytes):
        keep_bytes(record, data)
    return record


def to_json(record: object) -> bytes:
    """Write a record compactly, for answers that leave the process."""
    return dump_json(to_wire(record))


@overload
def from_json(data: bytes | str, cls: type[RecordT]) -> RecordT: ...
@overload
def from_json(data: bytes | str, cls: UnionType) -> Any: ...
def from_json(data: bytes | str, cls: Any) -> Any:
    """Read a record from outside text.

    Raises:
        InvalidJsonError: the text breaks a rule of JSON, or is beyond the bound of the class.
        InvalidValueError: as :func:`from_wire`.
    """
    return from_wire(parse_json(data, JsonLimits.record(max_bytes_of(cls))), cls)
