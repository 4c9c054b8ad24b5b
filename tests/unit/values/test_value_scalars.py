"""Grammars of the text scalars: what they accept, and the one reason that they give for each refusal."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentruns.domain import ids, scalars
from agentruns.domain.ids import EventId, RunId
from agentruns.domain.scalars import (
    CapabilityName,
    CurrencyCode,
    FailureCode,
    GraphNamespace,
    JournalEventKind,
    NodeId,
    RouteId,
    Scope,
    ShardId,
    SubjectId,
    TenantId,
    TextScalar,
    Version,
)
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import InvalidValueError

SAMPLE = "0198c0de-0000-7000-8000-000000000001"

ACCEPTED = [
    (TenantId, "a"),
    (TenantId, "..."),
    (TenantId, "A.b_c:d-9" + "x" * 119),
    (ShardId, "shard:1"),
    (JournalEventKind, "a9-b-c9"),
    (JournalEventKind, "k" * 96),
    (CapabilityName, "a.b-c_d.e9"),
    (FailureCode, "runtime.graph.barrier_rejected"),
    (NodeId, "9_.-"),
    (RouteId, "R"),
    (GraphNamespace, ""),
    (GraphNamespace, "outer/inner.1"),
    (CurrencyCode, "EUR"),
    (Scope, "!#[]~"),
    (SubjectId, ' "\\~'),
    (Version, "0.0.0"),
    (Version, "18446744073709551615.0.18446744073709551615"),
    (RunId, SAMPLE),
    (RunId, "ffffffff-ffff-7fff-bfff-ffffffffffff"),
    (AgentSubmissionKey, "0123456789abc._~-"[:16]),
    (AgentSubmissionKey, "k" * 128),
]

REFUSED: list[tuple[type[TextScalar], str, str, int | None]] = [
    (TenantId, "", "too_short", None),
    (TenantId, "x" * 129, "too_long", None),
    (TenantId, "é" * 65, "too_long", None),
    (TenantId, "\ud800" * 43, "too_long", None),
    (TenantId, "\ud800", "invalid_byte", 0),
    (TenantId, ".", "invalid_format", None),
    (TenantId, "..", "invalid_format", None),
    (TenantId, "tenant\n", "invalid_byte", 6),
    (TenantId, "tenant a", "invalid_byte", 6),
    (TenantId, "tenant٣", "invalid_byte", 6),
    (JournalEventKind, "9a", "invalid_format", None),
    (JournalEventKind, "a--b", "invalid_format", None),
    (JournalEventKind, "a-", "invalid_format", None),
    (JournalEventKind, "a_b", "invalid_byte", 1),
    (JournalEventKind, "k" * 97, "too_long", None),
    (CapabilityName, "a..b", "invalid_format", None),
    (CapabilityName, "a.9", "invalid_format", None),
    (CapabilityName, "aB", "invalid_byte", 1),
    (NodeId, "_a", "invalid_format", None),
    (NodeId, "a/b", "invalid_byte", 1),
    (GraphNamespace, "/a", "invalid_format", None),
    (GraphNamespace, "a/", "invalid_format", None),
    (GraphNamespace, "x" * 129, "invalid_format", None),
    (GraphNamespace, "x" * 513, "too_long", None),
    (CurrencyCode, "EU", "too_short", None),
    (CurrencyCode, "EURO", "too_long", None),
    (CurrencyCode, "EUr", "invalid_byte", 2),
    (Scope, 'a"', "invalid_byte", 1),
    (Scope, "a\\", "invalid_byte", 1),
    (Scope, "a b", "invalid_byte", 1),
    (SubjectId, "a\x7f", "invalid_byte", 1),
    (SubjectId, "x" * 256, "too_long", None),
    (Version, "1.2", "too_short", None),
    (Version, "1.2.3.4", "invalid_format", None),
    (Version, "1..2.", "invalid_format", None),
    (Version, "1.2..", "invalid_format", None),
    (Version, "01.2.3", "not_canonical", None),
    (Version, "1.2.00", "not_canonical", None),
    (Version, "1.2.3a", "invalid_byte", 5),
    (Version, "18446744073709551616.0.0", "out_of_range", None),
    (Version, "0.100000000000000000000.0", "out_of_range", None),
    (RunId, SAMPLE[:-1], "too_short", None),
    (RunId, SAMPLE + "0", "too_long", None),
    (RunId, "{" + SAMPLE[1:-1] + "}", "invalid_byte", 0),
    (RunId, "urn:uuid:" + SAMPLE, "too_long", None),
    (RunId, SAMPLE.upper(), "not_canonical", 4),
    (RunId, SAMPLE.replace("-", "0"), "invalid_format", None),
    (RunId, "00000000-0000-0000-0000-000000000000", "unsupported_version", None),
    (RunId, "0198c0de-0000-4000-8000-000000000001", "unsupported_version", None),
    (RunId, "0198c0de-0000-7000-c000-000000000001", "unsupported_version", None),
    (RunId, "0198C0DE-0000-7000-8000-00000000000G", "invalid_byte", 4),
    (AgentSubmissionKey, "k" * 15, "too_short", None),
    (AgentSubmissionKey, "k" * 16 + " ", "invalid_byte", 16),
    (AgentSubmissionKey, "k" * 16 + "é", "invalid_byte", 16),
]

CLASSES = [
    each
    for module in (scalars, ids)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, TextScalar) and not each.__name__.startswith("_")
]


@pytest.mark.parametrize(("cls", "text"), ACCEPTED)
def test_a_canonical_text_comes_back_as_it_was(cls: type[TextScalar], text: str) -> None:
    value = cls.parse(text)
    assert (str(value), value.text, cls(text)) == (text, text, value)


@pytest.mark.parametrize(("cls", "text", "reason", "offset"), REFUSED)
def test_a_refusal_names_the_first_broken_rule_and_never_the_text(
    cls: type[TextScalar], text: str, reason: str, offset: int | None
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        cls.parse(text)
    error = refused.value
    assert (error.type_name, error.reason, error.offset) == (cls.__name__, reason, offset)
    assert text == "" or text not in str(error).replace(cls.__name__, "") or len(text) < 3


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("value", [b"tenant", None, 7, ["a"]])
def test_anything_but_str_is_a_type_error(cls: type[TextScalar], value: object) -> None:
    with pytest.raises(TypeError):
        cls.parse(value)  # type: ignore[arg-type]  # on purpose


def test_a_subclass_of_str_is_no_text() -> None:
    class Text(str):
        __slots__ = ()

    with pytest.raises(TypeError):
        TenantId.parse(Text("tenant"))


def test_values_of_two_classes_are_never_equal_and_never_ordered() -> None:
    assert TenantId("a") != ShardId("a")
    assert TenantId("a") != "a"
    for compare in ("__lt__", "__le__", "__gt__", "__ge__"):
        assert getattr(TenantId("a"), compare)(ShardId("b")) is NotImplemented
        assert getattr(Version("1.0.0"), compare)(TenantId("b")) is NotImplemented
    with pytest.raises(TypeError):
        assert TenantId("a") < ShardId("b")  # type: ignore[operator]  # on purpose


def test_texts_are_ordered_by_their_bytes() -> None:
    assert sorted(map(NodeId, ["b", "a", "B", "a.b", "a-b"])) == list(map(NodeId, ["B", "a", "a-b", "a.b", "b"]))
    assert NodeId("a") <= NodeId("a")
    assert NodeId("b") > NodeId("a")
    assert NodeId("b") >= NodeId("b")


def test_versions_are_ordered_by_number() -> None:
    assert sorted(map(Version, ["1.10.0", "1.9.0", "0.0.99"])) == list(map(Version, ["0.0.99", "1.9.0", "1.10.0"]))
    assert Version("1.10.0").numbers == (1, 10, 0)
    assert Version("1.9.0") <= Version("1.10.0")
    assert Version("1.10.0") > Version("1.9.0")
    assert Version("1.10.0") >= Version("1.10.0")


def test_a_scalar_is_immutable_hashable_and_travels() -> None:
    value = TenantId("tenant")
    with pytest.raises(AttributeError):
        value.text = "other"  # type: ignore[misc]  # on purpose
    assert hash(value) == hash(TenantId("tenant"))
    assert copy.copy(value) is value
    assert copy.deepcopy(value) is value
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301  # our own bytes
    assert not hasattr(value, "__dict__")


def test_repr_shows_public_texts_and_hides_private_ones() -> None:
    assert repr(TenantId("tenant")) == "TenantId('tenant')"
    assert repr(SubjectId("somebody")) == "SubjectId(redacted)"
    assert repr(AgentSubmissionKey("0123456789abcdef")) == "AgentSubmissionKey(redacted)"


def test_generated_ids_are_distinct_and_of_version_7() -> None:
    made = {EventId.generate() for _ in range(1000)}
    assert len(made) == 1000
    assert {each.text[14] for each in made} == {"7"}


def test_an_id_is_taken_from_a_uuid_of_the_standard_library() -> None:
    assert RunId.from_uuid(uuid.UUID(SAMPLE)) == RunId(SAMPLE)


def test_a_generated_key_has_73_characters_and_is_not_pickled() -> None:
    key = AgentSubmissionKey.generate()
    assert len(key.text) == 73
    assert key != AgentSubmissionKey.generate()
    assert AgentSubmissionKey.parse(str(key)) == key
    with pytest.raises(TypeError, match="a submission key is not pickled"):
        pickle.dumps(key)
    assert copy.deepcopy(key) is key


def test_ids_stay_distinct_under_threads() -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: EventId.generate().text, range(2000)))
    assert len(set(made)) == 2000


FORK = """
import os
from uuid_utils import uuid4
from agentruns.domain.ids import EventId
EventId.generate()
child = os.fork()
made = [str(uuid4()) for _ in range(200)] + [EventId.generate().text for _ in range(200)]
if child:
    os.waitpid(child, 0)
print(*made, flush=True)
"""


def test_ids_stay_distinct_after_fork() -> None:
    # Ids collide only within a millisecond; what the same random numbers alone make tells in every run.
    printed = subprocess.run([sys.executable, "-c", FORK], capture_output=True, check=True, text=True)  # noqa: S603  # our own text
    made = printed.stdout.split()
    assert len(made) == len(set(made)) == 800
