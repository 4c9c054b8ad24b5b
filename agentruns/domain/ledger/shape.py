"""What all shapes of event data have in common: closed, canonical, written and read by a table of their members."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

from attrs import NOTHING, fields, frozen

from agentruns.domain.ledger.codecs import Codec, as_object, invalid
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.members import check_members

#: Of the canonical bytes of any event's data.
MAX_DATA_BYTES = 16 * 1024


class EventData:
    """Hold the data of one event. The constructor is the check; the member ``operation`` follows from the kind.

    A shape that serves several kinds has ``kind`` as an attribute, any other one as a constant of its class.
    """

    __slots__ = ()

    #: The kinds that have this shape.
    kinds: ClassVar[tuple[EventKind, ...]] = ()
    kind: EventKind

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.kind not in self.kinds:
            raise invalid("wrong_kind")

    def encode(self) -> bytes:
        """Give the canonical bytes."""
        shape: type = type(self)
        parts = []
        for prefix, name, write in _layout(shape, self.kind):
            if write is None:
                parts.append(prefix)
            elif (value := getattr(self, name)) is not None:
                parts.append(prefix + write(value))
        return b"{%b}" % b",".join(parts)

    @classmethod
    def of_tree(cls, kind: EventKind, tree: object) -> Self:
        """Read what a parser made.

        Raises:
            InvalidValueError: a member is missing, foreign or no value of its type.
            TypeError: a member is of another type of JSON.
        """
        shape: type = cls
        table = _table(shape)
        members = as_object(tree, table.names)
        if not table.required <= members.keys():
            raise invalid("missing_member")
        if members["operation"] != kind.operation:
            raise invalid("wrong_operation")
        values = {name: codec.read(members[name]) for name, codec in table.codecs.items() if name in members}
        if table.has_kind:
            values["kind"] = kind
        return cls(**values)


class _Place(NamedTuple):
    """Say what stands at one place of the bytes: a constant, or a name before a value that ``write`` gives."""

    prefix: bytes
    name: str = ""
    write: Callable[[Any], bytes] | None = None


@frozen
class _Table:
    """List the members of a shape."""

    codecs: dict[str, Codec]
    required: frozenset[str]
    has_kind: bool

    @property
    def names(self) -> frozenset[str]:
        return frozenset({*self.codecs, "operation"})


@cache
def _table(cls: type) -> _Table:
    attributes = {each.name: each for each in fields(cls)}
    codecs: dict[str, Codec] = {
        name: each.metadata["codec"] for name, each in attributes.items() if "codec" in each.metadata
    }
    required = {name for name in codecs if attributes[name].default is NOTHING}
    return _Table(codecs, frozenset({*required, "operation"}), "kind" in attributes)


@cache
def _layout(cls: type, kind: EventKind) -> tuple[_Place, ...]:
    """Put the members into the order of their names, which are ASCII, so that joining them is canonical."""
    table = _table(cls)
    places = {name: _Place(f'"{name}":'.encode("ascii"), name, codec.write) for name, codec in table.codecs.items()}
    places["operation"] = _Place(f'"operation":"{kind.operation}"'.encode("ascii"))
    return tuple(places[name] for name in sorted(places))
