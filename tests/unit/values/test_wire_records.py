"""The wire form over records that use every kind of member: round trips, and one error for each refusal."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, TypeAlias

import pytest
from attrs import field, frozen

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import JsonTree, canonical_bytes
from agentruns.domain.digests import DigestPurpose, digest_body, plain_digest
from agentruns.domain.ids import RunId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.kept import KeptBytes
from agentruns.domain.numbers import TokenCount
from agentruns.domain.scalars import NodeId, Scope, SubjectId
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.domain.wire import decode, encode, from_json, from_wire, register_union, to_json, to_wire
from agentruns.domain.wire_members import max_bytes_of, variants_of
from agentruns.errors import InvalidJsonError, InvalidValueError, InvariantError

RUN = "0198c0de-0000-7000-8000-000000000001"
CANARY = "canary-7d1f"


class Colour(Enum):
    RED = "red"
    DARK_BLUE = "dark_blue"


@frozen(kw_only=True)
class Nothing:
    pass


@frozen(kw_only=True)
class Something:
    amount: TokenCount
    class_name: str = field(metadata={"name": "class"})


Choice: TypeAlias = Nothing | Something
register_union(Choice, tag="kind", variants={"nothing": Nothing, "something": Something})


@frozen
class Nodes:
    is_array: ClassVar[bool] = True

    nodes: tuple[NodeId, ...]

    def __attrs_post_init__(self) -> None:
        if list(self.nodes) != sorted(self.nodes):
            raise InvalidValueError(type_name="Nodes", reason="unsorted")


@frozen(kw_only=True)
class Part(KeptBytes):
    run_id: RunId
    note: str | None = None


@frozen(kw_only=True)
class Whole(KeptBytes):
    max_wire_bytes: ClassVar[int] = 4096
    digest_purpose: ClassVar[DigestPurpose] = DigestPurpose.STATE

    text: str
    flag: bool
    attempt: int = field(metadata={"decimal": True})
    plain: int
    colour: Colour
    colours: frozenset[Colour]
    scopes: ScopeSet
    subject: SubjectId
    part: Part
    parts: tuple[Part, ...]
    choice: Choice
    choices: tuple[Choice, ...]
    nodes: Nodes
    json: BoundedJson = field(metadata={"limits": JsonLimits(max_depth=2)})
    jsons: tuple[BoundedJson, ...]
    answer: Choice | None = field(metadata={"nullable": True})
    other: Choice | None = None
    more: BoundedJson | None = None
    count: TokenCount | None = None
    derived: int = field(init=False, default=7)

    def __attrs_post_init__(self) -> None:
        if self.text == "cross":
            raise InvalidValueError(type_name="Whole", reason="cross_field", path=("text",))
        if self.text == "foreign":
            raise ValueError(CANARY)


def whole(**changes: Any) -> Whole:
    members: dict[str, Any] = {
        "text": 'a"\\\n\u2028é',
        "flag": True,
        "attempt": 3,
        "plain": 5,
        "colour": Colour.DARK_BLUE,
        "colours": frozenset(Colour),
        "scopes": ScopeSet.of("b", "a"),
        "subject": SubjectId('"\\'),
        "part": Part(run_id=RunId(RUN)),
        "parts": (Part(run_id=RunId(RUN), note="x"), Part(run_id=RunId(RUN))),
        "choice": Nothing(),
        "choices": (Something(amount=TokenCount(1), class_name="c"), Nothing()),
        "nodes": Nodes((NodeId("a"), NodeId("b"))),
        "json": BoundedJson.of({"n": [1.5]}),
        "jsons": (BoundedJson.of(None), BoundedJson.of("é")),
        "answer": None,
    }
    return Whole(**{**members, **changes})


TREE: dict[str, Any] = {
    "text": 'a"\\\n\u2028é',
    "flag": True,
    "attempt": "3",
    "plain": 5,
    "colour": "dark_blue",
    "colours": ["dark_blue", "red"],
    "scopes": ["a", "b"],
    "subject": '"\\',
    "part": {"run_id": RUN},
    "parts": [{"run_id": RUN, "note": "x"}, {"run_id": RUN}],
    "choice": {"kind": "nothing"},
    "choices": [{"kind": "something", "amount": "1", "class": "c"}, {"kind": "nothing"}],
    "nodes": ["a", "b"],
    "json": {"n": [1.5]},
    "jsons": [None, "é"],
    "answer": None,
}

FULL: dict[str, Any] = {
    "answer": Something(amount=TokenCount(2), class_name="d"),
    "other": Nothing(),
    "more": BoundedJson.of(None),
    "count": TokenCount(0),
}


def test_the_wire_form_is_a_plain_tree() -> None:
    assert to_wire(whole()) == TREE
    assert to_wire(whole(**FULL)) == {
        **TREE,
        "answer": {"kind": "something", "amount": "2", "class": "d"},
        "other": {"kind": "nothing"},
        "more": None,
        "count": "0",
    }


@pytest.mark.parametrize("changes", [{}, FULL], ids=["sparse", "full"])
def test_every_way_round_trips(changes: dict[str, Any]) -> None:
    record = whole(**changes)
    data = encode(record)
    assert data == canonical_bytes(to_wire(record))
    assert from_wire(to_wire(record), Whole) == record
    assert from_json(to_json(record), Whole) == record
    assert decode(data, Whole) == record


def test_a_variant_carries_its_tag_alone_and_in_its_union() -> None:
    variant = Something(amount=TokenCount(1), class_name="c")
    tree: JsonTree = {"kind": "something", "amount": "1", "class": "c"}
    assert to_wire(variant) == tree
    assert from_wire(tree, Something) == variant
    assert from_wire(tree, Choice) == variant
    assert decode(encode(variant), Choice) == variant
    assert from_json(b'{"kind":"nothing"}', Choice) == Nothing()


class Missing(Enum):
    """Stand for a member that is left out; named, so that a test's id is the same in every process."""

    MISSING = "missing"

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing.MISSING


@pytest.mark.parametrize(
    ("change", "reason", "path"),
    [
        ({"text": 5}, "wrong_type", ("text",)),
        ({"text": MISSING}, "missing_member", ("text",)),
        ({"flag": 1}, "wrong_type", ("flag",)),
        ({"plain": True}, "wrong_type", ("plain",)),
        ({"plain": 5.0}, "wrong_type", ("plain",)),
        ({"plain": "5"}, "wrong_type", ("plain",)),
        ({"attempt": 3}, "wrong_type", ("attempt",)),
        ({"attempt": "03"}, "not_canonical", ("attempt",)),
        ({"colour": 1}, "wrong_type", ("colour",)),
        ({"colour": "RED"}, "invalid_value", ("colour",)),
        ({"colours": ["red", "dark_blue"]}, "unsorted", ("colours",)),
        ({"colours": ["red", "red"]}, "duplicate", ("colours",)),
        ({"colours": "red"}, "not_an_array", ("colours",)),
        ({"colours": ["green"]}, "invalid_value", ("colours", 0)),
        ({"scopes": ["b", "a"]}, "unsorted", ("scopes",)),
        ({"scopes": ["a", "a"]}, "duplicate", ("scopes",)),
        ({"scopes": ["a", "b c"]}, "invalid_byte", ("scopes", 1)),
        ({"scopes": {"a": 1}}, "not_an_array", ("scopes",)),
        ({"subject": {"text": "a"}}, "wrong_type", ("subject",)),
        ({"part": [RUN]}, "not_an_object", ("part",)),
        ({"part": {"run_id": RUN.upper()}}, "not_canonical", ("part", "run_id")),
        ({"part": {"run_id": RUN, "note": None}}, "unexpected_null", ("part", "note")),
        ({"part": {"run_id": RUN, CANARY: 1, "b": 2}}, "unknown_member", ("part",)),
        ({"parts": ({"run_id": RUN},)}, "not_an_array", ("parts",)),
        ({"parts": [{"run_id": RUN}, {}]}, "missing_member", ("parts", 1, "run_id")),
        ({"choice": []}, "not_an_object", ("choice",)),
        ({"choice": [1]}, "not_an_object", ("choice",)),
        ({"choice": None}, "not_an_object", ("choice",)),
        ({"choice": {}}, "missing_member", ("choice", "kind")),
        ({"choice": {"kind": 1}}, "wrong_type", ("choice", "kind")),
        ({"choice": {"kind": ["nothing"]}}, "wrong_type", ("choice", "kind")),
        ({"choice": {"kind": "__class__"}}, "unknown_kind", ("choice", "kind")),
        ({"choice": {"kind": "nothing", "x": 1}}, "unknown_member", ("choice",)),
        ({"choice": {"kind": "something", "class": "c", "amount": 1}}, "wrong_type", ("choice", "amount")),
        ({"nodes": ["b", "a"]}, "unsorted", ("nodes",)),
        ({"nodes": ["a", 1]}, "wrong_type", ("nodes", 1)),
        ({"nodes": {"nodes": []}}, "not_an_array", ("nodes",)),
        ({"json": [[[]]]}, "nesting_too_deep", ("json",)),
        ({"jsons": [1, (2,)]}, "unsupported_type", ("jsons", 1)),
        ({"answer": MISSING}, "missing_member", ("answer",)),
        ({"other": None}, "unexpected_null", ("other",)),
        ({"count": None}, "unexpected_null", ("count",)),
        ({"count": True}, "wrong_type", ("count",)),
        ({"derived": 7}, "unknown_member", ()),
        ({"text": "cross"}, "cross_field", ("text",)),
        ({"text": "foreign"}, "invalid_value", ()),
    ],
    ids=repr,
)
def test_a_refusal_is_one_error_with_class_path_and_reason(
    change: dict[str, Any], reason: str, path: tuple[str | int, ...]
) -> None:
    tree = {name: value for name, value in {**TREE, **change}.items() if value is not MISSING}
    with pytest.raises(InvalidValueError) as refused:
        from_wire(tree, Whole)
    error = refused.value
    assert (error.type_name, error.reason, error.path) == ("Whole", reason, path)
    assert (error.__cause__, error.__context__) == (None, None)
    assert CANARY not in str(error) + repr(error)


def test_unknown_members_are_counted_and_not_named() -> None:
    with pytest.raises(InvalidValueError) as refused:
        from_wire({**TREE, CANARY: 1, "b": 2}, Whole)
    assert (refused.value.reason, refused.value.count) == ("unknown_member", 2)
    assert CANARY not in str(refused.value) + repr(refused.value)


def test_a_union_is_named_by_its_variants() -> None:
    with pytest.raises(InvalidValueError) as refused:
        from_wire({"kind": "neither"}, Choice)
    assert refused.value.type_name == "Nothing | Something"
    assert refused.value.path == ("kind",)
    with pytest.raises(InvalidValueError) as refused:
        from_wire({"kind": "nothing"}, Something)
    assert (refused.value.reason, refused.value.path) == ("unknown_kind", ("kind",))


def test_json_keeps_its_own_error_with_its_limit_and_pointer() -> None:
    with pytest.raises(InvalidJsonError) as refused:
        from_wire({**TREE, "json": {"a": [[]]}}, Whole)
    error = refused.value
    assert (error.path, error.limit, error.actual, error.pointer) == (("json",), 2, 3, "/a/0")


def test_bytes_that_are_read_back_are_not_held_against_the_limits_of_a_field() -> None:
    deep = {**TREE, "json": [[[]]]}
    data = canonical_bytes(deep)
    assert to_wire(decode(data, Whole)) == deep
    with pytest.raises(InvalidJsonError, match="nesting_too_deep"):
        from_json(data, Whole)


def test_decode_reads_canonical_bytes_only_and_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(whole())
    with pytest.raises(InvalidJsonError, match="not_canonical"):
        decode(to_json(whole()), Whole)
    record = decode(data, Whole)
    monkeypatch.setattr("agentruns.domain.kept.record_bytes", lambda _: pytest.fail("encoded again"))
    assert record.canonical is data
    assert encode(record) is data


@pytest.mark.parametrize("size", [3600, 5000])
def test_the_bound_of_a_class_holds_in_both_directions(size: int) -> None:
    record = whole(text="x" * size)
    tree = to_wire(record)
    if size < 4000:
        assert from_wire(tree, Whole) == decode(encode(record), Whole)
        return
    for call in (encode, lambda value: value.canonical):
        with pytest.raises(InvalidValueError) as refused:
            call(record)
        assert (refused.value.type_name, refused.value.reason) == ("Whole", "too_large")
    with pytest.raises(InvalidJsonError, match="input_too_large"):
        decode(canonical_bytes(tree), Whole)


def test_a_class_without_a_bound_has_two_mebibytes() -> None:
    assert (max_bytes_of(Part), max_bytes_of(Whole), max_bytes_of(Choice)) == (2_097_152, 4096, 2_097_152)
    with pytest.raises(InvalidValueError, match="too_large"):
        encode(Something(amount=TokenCount(1), class_name="x" * 2_097_152))


def test_kept_bytes_are_computed_once_and_no_part_of_the_value() -> None:
    record = whole()
    fresh = pickle.dumps(record)
    assert record.canonical is record.canonical
    assert record.digest is record.digest
    assert record.digest == digest_body(DigestPurpose.STATE, record.canonical)
    assert record.part.digest == plain_digest(b'{"run_id":"' + RUN.encode() + b'"}')
    assert pickle.dumps(record) == fresh
    again = pickle.loads(fresh)  # noqa: S301  # our own bytes
    assert again == record
    assert again.canonical == record.canonical
    assert copy.deepcopy(record) == record
    assert "_kept" not in repr(record)


def test_a_part_is_encoded_once_however_often_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Part(run_id=RunId(RUN))
    assert part.canonical
    monkeypatch.setattr("agentruns.domain.kept.record_bytes", lambda _: pytest.fail("encoded again"))
    outer = Pair(left=part, right=part)
    assert encode(outer) == canonical_bytes({"left": {"run_id": RUN}, "right": {"run_id": RUN}})


@frozen(kw_only=True)
class Pair:
    left: Part
    right: Part


@frozen(kw_only=True)
class Handmade:
    text: str

    def _spliced(self) -> bytes:
        return b'{"text":"' + self.text.encode() + b'"}'


def test_a_class_may_write_its_own_bytes() -> None:
    assert encode(Handmade(text="abc")) == canonical_bytes(to_wire(Handmade(text="abc")))


def test_a_submission_key_is_read_and_never_written() -> None:
    @frozen(kw_only=True)
    class Keyed:
        key: AgentSubmissionKey

    keyed = from_wire({"key": "0123456789abcdef"}, Keyed)
    assert keyed == Keyed(key=AgentSubmissionKey("0123456789abcdef"))
    for write in (to_wire, to_json, encode):
        with pytest.raises(TypeError, match="a submission key is not written anywhere"):
            write(keyed)


def _declare(kind: Any, **arguments: Any) -> Callable[[], object]:
    return lambda: register_union(kind, **arguments)


@pytest.mark.parametrize(
    "declare",
    [
        _declare(Choice, tag="kind", variants={"nothing": Nothing, "something": Something}),
        _declare(Pair | Handmade, tag="kind", variants={"pair": Pair}),
        _declare(Pair | Handmade, tag="kind", variants={"pair": Pair, "twin": Pair, "made": Handmade}),
    ],
)
def test_a_union_is_declared_once_and_whole(declare: Callable[[], object]) -> None:
    with pytest.raises(InvariantError):
        declare()
    assert variants_of(Pair | Handmade) is None


def test_a_class_that_cannot_stand_on_the_wire_is_a_fault_of_the_library() -> None:
    @frozen(kw_only=True)
    class Untagged:
        choice: Pair | Handmade

    @frozen(kw_only=True)
    class Undefined:
        note: str | None

    for cls in (Untagged, Undefined):
        with pytest.raises(InvariantError):
            from_wire({}, cls)


@pytest.mark.parametrize("kind", ["float", "bytes", "datetime", "UUID", "Decimal", "date"])
def test_no_record_has_a_member_of_such_a_type(kind: str) -> None:
    from datetime import date, datetime  # noqa: PLC0415  # looked up by name
    from decimal import Decimal  # noqa: PLC0415
    from uuid import UUID  # noqa: PLC0415

    found = {"float": float, "bytes": bytes, "datetime": datetime, "UUID": UUID, "Decimal": Decimal, "date": date}[kind]
    with pytest.raises(InvalidValueError, match="wrong_type"):
        from_wire("1", found)


def test_scopes_are_scopes() -> None:
    assert from_wire(["a"], ScopeSet) == ScopeSet([Scope("a")])
    assert from_wire([], ScopeSet) == ScopeSet()
    assert (to_wire(ScopeSet.of("b", "a")), encode(ScopeSet.of("b", "a"))) == (["a", "b"], b'["a","b"]')
