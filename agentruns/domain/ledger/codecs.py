"""How each type of member of event data is written as canonical bytes, and read from what a parser made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.encoding import encoder_of
from agentruns.domain.ids import AttemptId, InvocationId, WaitId
from agentruns.domain.ledger.effects import ToolEffect
from agentruns.domain.numbers import InvocationNumber, RunRevision, Superstep, parse_decimal
from agentruns.domain.scalars import NodeId, Scalar
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.tool import ToolRisk
from agentruns.errors import InvalidValueError

Metadata: TypeAlias = Mapping[str, Any]

#: The largest count that an event states; a ready set has no more nodes.
LARGEST_COUNT: Final = 1024


@frozen
class Codec:
    """Write and read the members of one type.

    ``read`` raises ``InvalidValueError`` or ``TypeError`` for what is no value of the type.

    Attributes:
        write: gives the canonical bytes of a value.
        read: gives the value of a parsed tree.
    """

    write: Callable[[Any], bytes]
    read: Callable[[Any], Any]


def member(codec: Codec) -> Metadata:
    """Make the metadata of an attribute that stands in event data."""
    return {"codec": codec}


def as_object(tree: object, names: frozenset[str]) -> dict[str, Any]:
    """Insist on an object with no other members.

    Raises:
        InvalidValueError: ``wrong_type`` or ``unknown_member``.
    """
    if type(tree) is not dict:
        raise invalid("wrong_type")
    if not tree.keys() <= names:
        raise invalid("unknown_member")
    return tree


def as_array(tree: object) -> list[Any]:
    """Insist on an array.

    Raises:
        InvalidValueError: ``wrong_type``.
    """
    if type(tree) is not list:
        raise invalid("wrong_type")
    return tree


def invalid(reason: str) -> InvalidValueError:
    """Make the error of event data that is not as its kind says."""
    return InvalidValueError(type_name="EventData", reason=reason)


def quoted(value: object) -> bytes:
    """Write a value whose text needs no escape: an id, a name, a digest, an instant or a number."""
    return f'"{value}"'.encode("ascii")


def scalar(cls: type[Scalar]) -> Codec:
    """Write a scalar by its text, as records do."""
    return Codec(encoder_of(cls), cls.parse)


def array(of: Codec) -> Codec:
    """Write a tuple in its order."""
    write, read = of.write, of.read
    return Codec(
        lambda values: b"[" + b",".join(map(write, values)) + b"]",
        lambda tree: tuple(map(read, as_array(tree))),
    )


def _word(cls: type[Enum]) -> Codec:
    words = {each.value: each for each in cls}

    def read(tree: object) -> Enum:
        if type(tree) is not str or tree not in words:
            raise invalid("unknown_word")
        return words[tree]

    return Codec(lambda each: quoted(each.value), read)


def _read_count(tree: str) -> int:
    return parse_decimal(int, tree, highest=LARGEST_COUNT)


DIGEST: Final = member(scalar(Digest))
NODE: Final = member(scalar(NodeId))
STEP: Final = member(scalar(Superstep))
REVISION: Final = member(scalar(RunRevision))
INSTANT: Final = member(scalar(Timestamp))
ATTEMPT_ID: Final = member(scalar(AttemptId))
WAIT_ID: Final = member(scalar(WaitId))
WAIT_IDS: Final = member(array(scalar(WaitId)))
INVOCATION_ID: Final = member(scalar(InvocationId))
INVOCATION_NUMBER: Final = member(scalar(InvocationNumber))
COUNT: Final = member(Codec(quoted, _read_count))
RISK: Final = member(_word(ToolRisk))
EFFECT: Final = member(_word(ToolEffect))
