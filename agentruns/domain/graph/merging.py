"""What becomes of one member of a state when several nodes have something to say about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, unique
from typing import Final

from agentruns.domain.canonical import JsonTree, canonical_bytes
from agentruns.domain.json_walk import INTEGER_MAX
from agentruns.errors import ReducerRejectedError


@unique
class MergeOperation(Enum):
    """Say how values of siblings come together.

    ``replace``: the value that all of them agree on. ``last``: that of the highest node id. ``append``: lists joined
    in the order of node ids. ``union``: strings, each once, sorted. ``add``: the sum of integers.
    """

    REPLACE = "replace"
    LAST = "last"
    APPEND = "append"
    UNION = "union"
    ADD = "add"


def merge(operation: MergeOperation, values: Sequence[JsonTree], *, present: Sequence[JsonTree]) -> JsonTree:
    """Give the member's next value.

    Args:
        operation: how they come together.
        values: what the updates say, at least one, in the order of node ids.
        present: the member's value in the state, or nothing where it has none.

    Raises:
        ReducerRejectedError: ``different_values``, ``not_a_list``, ``not_a_string``, ``not_an_integer`` or
            ``out_of_range``.
    """
    return _OPERATIONS[operation](values, present)


def _agreed(values: Sequence[JsonTree], _present: Sequence[JsonTree]) -> JsonTree:
    if len(values) > 1 and len({canonical_bytes(value) for value in values}) > 1:
        raise ReducerRejectedError(code="different_values")
    return values[0]


def _last(values: Sequence[JsonTree], _present: Sequence[JsonTree]) -> JsonTree:
    return values[-1]


def _joined(values: Sequence[JsonTree], present: Sequence[JsonTree]) -> list[JsonTree]:
    joined: list[JsonTree] = []
    for value in [*present, *values]:
        if type(value) is not list:
            raise ReducerRejectedError(code="not_a_list")
        joined.extend(value)
    return joined


def _united(values: Sequence[JsonTree], present: Sequence[JsonTree]) -> list[JsonTree]:
    strings: set[str] = set()
    for entry in _joined(values, present):
        if type(entry) is not str:
            raise ReducerRejectedError(code="not_a_string")
        strings.add(entry)
    return [*sorted(strings)]


def _summed(values: Sequence[JsonTree], present: Sequence[JsonTree]) -> int:
    total = 0
    for value in [*present, *values]:
        if type(value) is not int:
            raise ReducerRejectedError(code="not_an_integer")
        total += value
    if abs(total) > INTEGER_MAX:
        raise ReducerRejectedError(code="out_of_range")
    return total


_OPERATIONS: Final[dict[MergeOperation, Callable[[Sequence[JsonTree], Sequence[JsonTree]], JsonTree]]] = {
    MergeOperation.REPLACE: _agreed,
    MergeOperation.LAST: _last,
    MergeOperation.APPEND: _joined,
    MergeOperation.UNION: _united,
    MergeOperation.ADD: _summed,
}
