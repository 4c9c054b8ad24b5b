"""One iterative walk over a JSON tree that checks every rule and limit, and counts what is asked for later."""

from __future__ import annotations

from typing import Any, TypeAlias

from attrs import frozen

from agentruns.domain.json_limits import JsonLimits
from agentruns.errors import InvalidJsonError

JsonTree: TypeAlias = "bool | int | float | str | list[JsonTree] | dict[str, JsonTree] | None"

_Container: TypeAlias = "dict[Any, Any] | list[Any]"

INTEGER_MAX = 2**53 - 1
#: From here on a float's canonical form has an exponent and reads back as a float.
FLOAT_EXPONENT_MIN = 1e21


@frozen
class Walked:
    """Say what the walk has counted.

    Attributes:
        depth: of nesting.
        nodes: values altogether.
        is_plain: no float and no name beyond ASCII, so that the fast encoder's bytes are the canonical ones.
    """

    depth: int
    nodes: int
    is_plain: bool


def walk(tree: object, limits: JsonLimits) -> Walked:
    """Check a tree of exactly JSON's types and count it.

    Raises:
        InvalidJsonError: a rule or a limit is broken; ``pointer`` leads to the place.
    """
    return _Walk(limits).run(tree)


def float_fault(number: float) -> str | None:
    """Say why a float is no number of ours, or ``None``."""
    if not -float("inf") < number < float("inf"):
        return "non_finite_number"
    if INTEGER_MAX < abs(number) < FLOAT_EXPONENT_MIN:
        return "integer_out_of_range"
    return None


def utf8_size(text: str) -> int | None:
    """Count the bytes of a text; ``None`` where it holds half of a surrogate pair."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        return None


#: A container that is still to be walked, its depth, the place that it stands in, and its name or index there. A tuple,
#: because one is made for every container; the root stands in none.
_Place: TypeAlias = "tuple[_Container, int, _Place | None, str | int]"


def _pointer(place: _Place | None, *last: str | int) -> str:
    """Write the JSON pointer (RFC 6901) of a container, or of one of its values."""
    tokens = list(last) if place is not None else []
    while place is not None and place[2] is not None:
        tokens.append(place[3])
        place = place[2]
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in reversed(tokens))


class _Walk:
    """Carry the counts of one walk, depth first, so that a container within itself ends at the depth limit.

    What nearly every value is, a short ASCII text or a container, is dealt with in the loops themselves.
    """

    __slots__ = ("depth", "is_plain", "limits", "nodes", "open")

    def __init__(self, limits: JsonLimits) -> None:
        self.limits = limits
        self.depth = 0
        self.nodes = 1
        self.is_plain = True
        self.open: list[_Place] = []

    def run(self, tree: object) -> Walked:
        if type(tree) is dict or type(tree) is list:
            self._enter((tree, 1, None, 0))
        else:
            self._scalar(None, 0, tree)
        while self.open:
            place = self.open.pop()
            container = place[0]
            self._count(place, len(container))
            if isinstance(container, dict):
                self._object(place, container)
            else:
                self._array(place, container)
        return Walked(self.depth, self.nodes, self.is_plain)

    def _object(self, place: _Place, members: dict[Any, Any]) -> None:
        longest, longest_name, depth = self.limits.max_string_bytes, self.limits.max_key_bytes, place[1] + 1
        for name, value in members.items():
            if type(name) is not str or len(name) > longest_name or not name.isascii():
                self._name(place, name)
            kind = type(value)
            if kind is dict or kind is list:
                self._enter((value, depth, place, name))
            elif kind is not str or len(value) > longest or not value.isascii():
                self._scalar(place, name, value)

    def _array(self, place: _Place, entries: list[Any]) -> None:
        longest, depth = self.limits.max_string_bytes, place[1] + 1
        for index, value in enumerate(entries):
            kind = type(value)
            if kind is dict or kind is list:
                self._enter((value, depth, place, index))
            elif kind is not str or len(value) > longest or not value.isascii():
                self._scalar(place, index, value)

    def _count(self, place: _Place, entries: int) -> None:
        self.nodes += entries
        if entries > self.limits.max_entries:
            raise _beyond("too_many_entries", self.limits.max_entries, entries, _pointer(place))
        if self.nodes > self.limits.max_nodes:
            raise _beyond("too_many_nodes", self.limits.max_nodes, self.nodes, _pointer(place))

    def _enter(self, place: _Place) -> None:
        depth = place[1]
        if depth > self.depth:
            if depth > self.limits.max_depth:
                raise _beyond("nesting_too_deep", self.limits.max_depth, depth, _pointer(place))
            self.depth = depth
        self.open.append(place)

    def _scalar(self, place: _Place | None, token: str | int, value: object) -> None:
        if type(value) is str:
            if fault := _text_fault(value, self.limits.max_string_bytes, "string_too_large", _pointer(place, token)):
                raise fault
        elif type(value) is int:
            if not -INTEGER_MAX <= value <= INTEGER_MAX:
                raise InvalidJsonError(reason="integer_out_of_range", pointer=_pointer(place, token))
        elif type(value) is float:
            self.is_plain = False
            if reason := float_fault(value):
                raise InvalidJsonError(reason=reason, pointer=_pointer(place, token))
        elif value is not None and type(value) is not bool:
            raise InvalidJsonError(
                reason="unsupported_type", type_name=type(value).__name__, pointer=_pointer(place, token)
            )

    def _name(self, place: _Place, name: object) -> None:
        if type(name) is not str:
            raise InvalidJsonError(reason="unsupported_type", type_name=type(name).__name__, pointer=_pointer(place))
        if not name.isascii():
            self.is_plain = False
        if fault := _text_fault(name, self.limits.max_key_bytes, "name_too_large", _pointer(place)):
            raise fault


def _text_fault(text: str, longest: int, reason: str, pointer: str) -> InvalidJsonError | None:
    size = utf8_size(text)
    if size is None:
        return InvalidJsonError(reason="lone_surrogate", pointer=pointer)
    return _beyond(reason, longest, size, pointer) if size > longest else None


def _beyond(reason: str, limit: int, actual: int, pointer: str) -> InvalidJsonError:
    return InvalidJsonError(reason=reason, limit=limit, actual=actual, pointer=pointer)
