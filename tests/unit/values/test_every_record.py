"""The rules of the wire form hold at every place of every record that the sample module makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, get_args, get_origin

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.encoding import record_bytes
from agentruns.domain.kept import KeptBytes
from agentruns.domain.status import RunStatus
from agentruns.domain.wire import decode, encode, from_json, from_wire, to_json, to_wire
from agentruns.domain.wire_members import is_record, members_of, tag_of, variants_of
from agentruns.errors import InvalidValueError
from agentruns.testing import model_samples, outcome_samples, samples

RECORDS = [
    samples.principal(),
    samples.identity(),
    samples.schema_reference(),
    samples.graph_reference(),
    samples.admission_request(),
    samples.cancellation(),
    samples.graph_state({"a": [1.5, None, "é"]}),
    model_samples.model(),
    model_samples.tool(),
    model_samples.model_agent(),
    outcome_samples.artifact(),
    outcome_samples.result(),
    outcome_samples.snapshot(RunStatus.ACTIVE),
    outcome_samples.snapshot(RunStatus.SUCCEEDED),
    outcome_samples.snapshot(RunStatus.FAILED, quarantined=True),
    outcome_samples.outcome(RunStatus.FAILED),
    outcome_samples.outcome(RunStatus.CANCELLED),
]
NAMES = [f"{type(record).__name__}-{at}" for at, record in enumerate(RECORDS)]

#: The class of an object, the path to it, and the object within one tree.
Place: TypeAlias = tuple[Any, tuple[str | int, ...], dict[str, Any]]
#: Makes one change after another to an object of a class, and yields after each.
Change: TypeAlias = Callable[[Any, dict[str, Any]], Iterator[None]]


def places(kind: Any, tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[Place]:
    """Walk every object that stands for a record."""
    if (found := variants_of(kind)) is not None and isinstance(tree, dict):
        kind = found[1][tree[found[0]]]
    if is_record(kind) and isinstance(tree, dict):
        yield kind, path, tree
        for member in members_of(kind):
            if member.name in tree:
                yield from places(member.kind, tree[member.name], (*path, member.name))
    elif get_origin(kind) is tuple:
        for index, each in enumerate(tree):
            yield from places(get_args(kind)[0], each, (*path, index))


def refusals(record: object, change: Change) -> Iterator[tuple[Place, InvalidValueError]]:
    """Make one change at a time, wherever it applies, collect what comes of it, and undo it."""
    tree = to_wire(record)
    for place in list(places(type(record), tree)):
        members = place[2]
        before = dict(members)
        for _ in change(place[0], members):
            with pytest.raises(InvalidValueError) as refused:
                from_wire(tree, type(record))
            yield place, refused.value
            members.clear()
            members.update(before)


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
def test_every_way_round_trips(record: Any) -> None:
    cls, tree, data = type(record), to_wire(record), encode(record)
    assert data == canonical_bytes(tree) == record_bytes(record)
    assert from_wire(tree, cls) == record
    assert to_wire(from_wire(tree, cls)) == tree
    assert from_json(to_json(record), cls) == record
    again = decode(data, cls)
    assert again == record
    if isinstance(again, KeptBytes):
        assert again.canonical is data
        assert again.digest == record.digest


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
def test_an_unknown_member_is_refused_everywhere(record: object) -> None:
    def add(_kind: Any, tree: dict[str, Any]) -> Iterator[None]:
        tree["canary"] = "canary"
        yield

    for (_, path, _), error in refusals(record, add):
        assert (error.reason, error.path, error.count) == ("unknown_member", path, 1)


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
def test_a_missing_tag_or_required_member_is_refused_everywhere(record: object) -> None:
    dropped = ""

    def drop(kind: Any, tree: dict[str, Any]) -> Iterator[None]:
        nonlocal dropped
        tag = tag_of(kind)
        names = [member.name for member in members_of(kind) if member.is_required]
        for dropped in names if tag is None else [tag.name, *names]:
            del tree[dropped]
            yield

    for (_, path, _), error in refusals(record, drop):
        assert (error.reason, error.path) == ("missing_member", (*path, dropped))


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
@pytest.mark.parametrize("value", [None, True, 5, 5.0, [[]], {"canary": {}}], ids=repr)
def test_a_member_of_another_json_type_is_refused_everywhere(record: object, value: object) -> None:
    aimed = ""

    def put(kind: Any, tree: dict[str, Any]) -> Iterator[None]:
        nonlocal aimed
        for member in members_of(kind):
            legal = member.kind is BoundedJson or (member.is_nullable and value is None)
            if member.name in tree and not legal and type(tree[member.name]) is not type(value):
                aimed = member.name
                tree[aimed] = value
                yield

    for (_, path, _), error in refusals(record, put):
        assert error.path[: len(path) + 1] == (*path, aimed)


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
def test_an_array_of_values_is_no_record(record: Any) -> None:
    tree = to_wire(record)
    assert isinstance(tree, dict)
    with pytest.raises(InvalidValueError, match="not_an_object"):
        from_wire(list(tree.values()), type(record))
