"""Spliced bytes are encoded bytes, and every way back gives the same record."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.encoding import record_bytes
from agentruns.domain.ids import RunId
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.kept import KeptBytes
from agentruns.domain.money import Money
from agentruns.domain.numbers import TokenCount
from agentruns.domain.scalars import Scope, SubjectId
from agentruns.domain.scopes import ScopeSet
from agentruns.domain.timestamps import Timestamp
from agentruns.domain.wire import decode, encode, from_json, from_wire, register_union, to_json, to_wire


class Tint(Enum):
    PALE = "pale"
    DARK = "dark"
    DARKER = "dark_er"


@frozen(kw_only=True)
class Empty:
    pass


@frozen(kw_only=True)
class Filled(KeptBytes):
    zebra: str
    data: BoundedJson = field(metadata={"limits": JsonLimits.MAXIMUM})
    apple: TokenCount | None = None


Content: TypeAlias = Empty | Filled
register_union(Content, tag="kind", variants={"empty": Empty, "filled": Filled})


@frozen(kw_only=True)
class Crate(KeptBytes):
    run_id: RunId
    label: str
    is_open: bool
    rank: int = field(metadata={"decimal": True})
    subject: SubjectId
    scopes: ScopeSet
    grants: frozenset[Scope]
    tints: frozenset[Tint]
    content: Content
    contents: tuple[Content, ...]
    costs: tuple[Money, ...]
    last: Content | None = field(metadata={"nullable": True})
    at: Timestamp | None = None
    other: BoundedJson | None = None


TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\0\x7f\u2028'), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e6, 1e6) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
).map(lambda tree: BoundedJson.of(tree, JsonLimits.MAXIMUM))
PRINTABLE = st.characters(min_codepoint=0x20, max_codepoint=0x7E)
SCOPES = st.text(PRINTABLE.filter(lambda each: each not in ' "\\'), min_size=1, max_size=4).map(Scope)
COUNTS = st.integers(0, 2**64 - 1).map(TokenCount)
CONTENTS = st.just(Empty()) | st.builds(Filled, zebra=TEXTS, data=JSON, apple=st.none() | COUNTS)
CRATES = st.builds(
    Crate,
    run_id=st.builds(RunId.generate),
    label=TEXTS,
    is_open=st.booleans(),
    rank=st.integers(0, 2**63 - 1),
    subject=st.text(PRINTABLE, min_size=1, max_size=6).map(SubjectId),
    scopes=st.frozensets(SCOPES, max_size=4).map(ScopeSet),
    grants=st.frozensets(SCOPES, max_size=4),
    tints=st.frozensets(st.sampled_from(Tint)),
    content=CONTENTS,
    contents=st.lists(CONTENTS, max_size=3).map(tuple),
    costs=st.lists(st.builds(Money.of, st.sampled_from(["EUR", "USD"]), st.integers(0, 2**64 - 1)), max_size=2).map(
        tuple
    ),
    last=st.none() | CONTENTS,
    at=st.none() | st.integers(Timestamp.lowest, Timestamp.highest).map(Timestamp),
    other=st.none() | JSON,
)


@given(CRATES)
def test_spliced_is_encoded_and_kept_is_fresh(crate: Crate) -> None:
    expected = canonical_bytes(to_wire(crate))
    assert record_bytes(crate) == expected
    assert (encode(crate), crate.canonical) == (expected, expected)


@given(CRATES)
def test_every_way_back_gives_the_same_record(crate: Crate) -> None:
    tree = to_wire(crate)
    assert from_wire(tree, Crate) == crate
    assert to_wire(from_wire(tree, Crate)) == tree
    assert from_json(to_json(crate), Crate) == crate
    again = decode(encode(crate), Crate)
    assert (again, hash(again)) == (crate, hash(crate))
    assert (again.canonical, again.digest) == (crate.canonical, crate.digest)
