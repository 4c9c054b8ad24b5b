from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentruns.domain.bounded_json import BoundedJson
from agentruns.domain.json_limits import JsonLimits
from agentruns.domain.schema import JsonSchemaRegistryBuilder, JsonSchemaRegistryLimits
from agentruns.domain.schema.validator import DocumentValidator
from agentruns.domain.schema.verdicts import ACCEPTED, ENTRY_BYTES, Rejection, Verdict, Verdicts
from agentruns.errors import SchemaRejectedError

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def value(tree: Any) -> BoundedJson:
    return BoundedJson.of(tree, JsonLimits.DEFAULT)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """Record each time a validator really runs."""
    calls: list[tuple[str, Any]] = []
    judge = DocumentValidator.judge

    def counting(self: DocumentValidator, value: BoundedJson) -> Verdict:
        calls.append((str(self.reference.id), value.value))
        return judge(self, value)

    monkeypatch.setattr(DocumentValidator, "judge", counting)
    return calls


def two_schemas(**limits: int) -> tuple[Any, Any, Any]:
    builder = JsonSchemaRegistryBuilder(JsonSchemaRegistryLimits(**limits))
    text = builder.add({"$schema": DIALECT, "$id": "https://example.org/text", "type": "string"}, "1.0.0")
    number = builder.add({"$schema": DIALECT, "$id": "https://example.org/number", "type": "number"}, "1.0.0")
    return builder.build(), text, number


def test_a_document_is_validated_once(judged: list[tuple[str, Any]]) -> None:
    schemas, text, _ = two_schemas()
    for _ in range(3):
        schemas.validate(text, value("a"))
        with pytest.raises(SchemaRejectedError) as caught:
            schemas.validate(text, value(1))
        assert caught.value.keyword == "type"
    assert judged == [("https://example.org/text", "a"), ("https://example.org/text", 1)]


def test_one_document_under_two_schemas_and_two_under_one_share_nothing(judged: list[tuple[str, Any]]) -> None:
    schemas, text, number = two_schemas()
    schemas.validate(text, value("a"))
    schemas.validate(number, value(1))
    for reference, tree in ((number, "a"), (text, 1)):
        with pytest.raises(SchemaRejectedError):
            schemas.validate(reference, value(tree))
    schemas.validate(text, value("b"))
    assert len(judged) == 5


def test_no_verdict_crosses_registries(judged: list[tuple[str, Any]]) -> None:
    for _ in range(2):
        schemas, text, _ = two_schemas()
        schemas.validate(text, value("a"))
    assert len(judged) == 2


def test_zero_verdicts_turn_it_off(judged: list[tuple[str, Any]]) -> None:
    schemas, text, _ = two_schemas(verdicts=0)
    for _ in range(3):
        schemas.validate(text, value("a"))
    assert len(judged) == 3


def test_least_recently_used_goes_first(judged: list[tuple[str, Any]]) -> None:
    schemas, text, _ = two_schemas(verdicts=2)
    for tree in ("a", "b", "a", "c", "a", "b"):
        schemas.validate(text, value(tree))
    assert [tree for _, tree in judged] == ["a", "b", "c", "b"]


def test_the_number_of_verdicts_is_bounded() -> None:
    verdicts = Verdicts(maximum=3)
    for number in range(10):
        verdicts.keep(bytes([number]), ACCEPTED)
        assert len(verdicts) <= 3
    assert [verdicts.find(bytes([number])) for number in (6, 7, 8, 9)] == [None, ACCEPTED, ACCEPTED, ACCEPTED]


def test_the_bytes_of_verdicts_are_bounded() -> None:
    rejection = Rejection(keyword="type", schema_pointer="/type", pointer="/é")
    assert rejection.size == 12
    verdicts = Verdicts(maximum=100, maximum_bytes=2 * ENTRY_BYTES + 12)
    verdicts.keep(b"a", rejection)
    verdicts.keep(b"b", ACCEPTED)
    assert verdicts.find(b"a") == rejection
    verdicts.keep(b"c", rejection)
    assert [verdicts.find(key) for key in (b"a", b"b", b"c")] == [None, None, rejection]
    verdicts.keep(b"d", ACCEPTED)
    assert [verdicts.find(key) for key in (b"c", b"d")] == [rejection, ACCEPTED]


def test_a_verdict_larger_than_the_bound_is_not_kept() -> None:
    verdicts = Verdicts(maximum=100, maximum_bytes=ENTRY_BYTES)
    verdicts.keep(b"a", Rejection(keyword="type", schema_pointer="/type", pointer=""))
    assert len(verdicts) == 0
    verdicts.keep(b"b", ACCEPTED)
    assert len(verdicts) == 1


def test_keeping_twice_counts_once() -> None:
    verdicts = Verdicts(maximum=2, maximum_bytes=2 * ENTRY_BYTES)
    for _ in range(5):
        verdicts.keep(b"a", ACCEPTED)
    verdicts.keep(b"b", ACCEPTED)
    assert (verdicts.find(b"a"), verdicts.find(b"b")) == (ACCEPTED, ACCEPTED)


def test_a_rejection_does_not_print_its_pointer() -> None:
    assert "secret" not in repr(Rejection(keyword="type", schema_pointer="/type", pointer="/secret"))


def test_sixteen_threads() -> None:
    schemas, text, number = two_schemas(verdicts=7)

    def ask(start: int) -> list[bool]:
        answers = []
        for step in range(300):
            tree: Any = (start + step) % 11
            tree = str(tree) if step % 2 else tree
            reference = text if step % 3 else number
            try:
                schemas.validate(reference, value(tree))
                answers.append(True)
            except SchemaRejectedError:
                answers.append(False)
        return answers

    expected = [(step % 2 == 1) == (step % 3 > 0) for step in range(300)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(16))) == [expected] * 16
