"""A statement as the driver takes it, and sets as the text of arrays."""

from __future__ import annotations

import pytest
from sqlalchemy import BigInteger, Boolean, DateTime, Dialect, LargeBinary, Text, Uuid, bindparam, make_url, select
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA
from sqlalchemy.schema import Column, MetaData, Table

from agentruns.domain.timestamps import Timestamp
from agentruns.errors import InvariantError
from agentruns.store.driver_texts import DriverTexts
from agentruns.store.sets import ItemSet
from agentruns.store.statements.run_commit import run_commit
from agentruns.store.statements.submit import admit

ITEMS = ItemSet(
    "item",
    {
        "id": Uuid(as_uuid=False),
        "count": BigInteger(),
        "is_new": Boolean(),
        "at": DateTime(timezone=True),
        "word": Text(collation="C"),
        "digest": BYTEA(),
        "body": BYTEA(),
    },
)
WORDS = Table("words", MetaData(schema="agentruns"), Column("word", Text()), Column("body", LargeBinary()))


@pytest.fixture
def dialect() -> Dialect:
    loaded: type[Dialect] = make_url("postgresql+asyncpg://").get_dialect()
    return loaded(dbapi=loaded.import_dbapi())  # type: ignore[call-arg]


def test_values_stand_in_the_order_of_the_text_beside_what_the_statement_brings(dialect: Dialect) -> None:
    statement = select(WORDS.c.word).where(
        WORDS.c.word > bindparam("low", type_=Text()),
        WORDS.c.word != "own",
        WORDS.c.word < bindparam("high", type_=Text()),
    )
    found = DriverTexts({}).find(statement, dialect)
    assert [found.text.index(f"${n}") for n in (1, 2, 3)] == sorted(found.text.index(f"${n}") for n in (1, 2, 3))
    assert found.values({"high": "z", "low": "a"}) == ("a", "own", "z")


@pytest.mark.parametrize("names", [(), ("word",)])
def test_one_value_and_none_are_a_sequence_too(dialect: Dialect, names: tuple[str, ...]) -> None:
    statement = select(WORDS.c.word).where(*(WORDS.c.word == bindparam(f"the_{name}", type_=Text()) for name in names))
    found = DriverTexts({}).find(statement, dialect)
    assert found.values({f"the_{name}": "a" for name in names}) == ("a",) * len(names)


def test_a_value_that_nobody_gives_is_missed(dialect: Dialect) -> None:
    found = DriverTexts({}).find(
        select(WORDS.c.word).where(WORDS.c.word.between(bindparam("low"), bindparam("high"))), dialect
    )
    with pytest.raises(KeyError, match="high"):
        found.values({"low": "a"})


def test_a_value_that_would_have_to_be_changed_first_is_a_fault(dialect: Dialect) -> None:
    statement = select(WORDS.c.word).where(WORDS.c.word.in_(bindparam("words", type_=ARRAY(LargeBinary()))))
    with pytest.raises(InvariantError) as error:
        DriverTexts({}).find(statement, dialect)
    assert error.value.reason == "bind_processor"


def test_the_statements_of_every_run_are_compiled_once_for_the_schema_in_use(dialect: Dialect) -> None:
    for statement in (admit(), run_commit(skip_locked=True), run_commit(skip_locked=False)):
        here, elsewhere = DriverTexts({}), DriverTexts({"agentruns": "other"})
        assert here.find(statement, dialect) is here.find(statement, dialect)
        assert "INTO agentruns.run_events" in here.find(statement, dialect).text
        assert "INTO other.run_events" in elsewhere.find(statement, dialect).text
        assert "agentruns" not in elsewhere.find(statement, dialect).text


AT = Timestamp.parse("2026-12-01T00:30:00.000001Z")


def test_what_is_short_travels_as_the_text_of_an_array() -> None:
    run_id = "0198c5a4-7b1e-7c3d-8f4a-1b2c3d4e5f60"
    rows = [(run_id, -1, True, AT, "a,{b}", b"\x00\xff", b"{}"), (None, None, False, None, "NULL", None, None)]
    assert ITEMS.parameters(rows) == {
        "item_id": "{" + run_id + ",NULL}",
        "item_count": "{-1,NULL}",
        "item_is_new": "{True,False}",
        "item_at": "{2026-12-01T00:30:00.000001Z,NULL}",
        "item_word": '{"a,{b}","NULL"}',
        "item_digest": '{"\\\\x00ff",NULL}',
        "item_body": [b"{}", None],
    }
    empty = dict.fromkeys(("item_id", "item_count", "item_is_new", "item_at", "item_word", "item_digest"), "{}")
    assert ITEMS.parameters([]) == {**empty, "item_body": []}


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (['"'], r'{"\""}'),
        (["\\"], r'{"\\"}'),
        (['a","b', "c"], r'{"a\",\"b","c"}'),
        (["", None, " "], '{"",NULL," "}'),
    ],
)
def test_quotes_and_strokes_in_a_text_are_escaped(words: list[str | None], written: str) -> None:
    texts = ItemSet("item", {"word": Text()})
    assert texts.parameters([(word,) for word in words]) == {"item_word": written}


def test_the_text_of_an_array_is_read_as_what_its_column_is(dialect: Dialect) -> None:
    text = str(select(ITEMS.source()).compile(dialect=dialect))
    assert (
        "CAST($1::VARCHAR AS UUID[]), CAST($2::VARCHAR AS BIGINT[]), CAST($3::VARCHAR AS BOOLEAN[]), "
        "CAST($4::VARCHAR AS TIMESTAMP WITH TIME ZONE[]), CAST($5::VARCHAR AS TEXT[]), "
        "CAST($6::VARCHAR AS BYTEA[]), $7::BYTEA[]" in text
    )
