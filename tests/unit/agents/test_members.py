"""Members are of exactly the classes that a record declares."""

from __future__ import annotations

import pytest
from attrs import frozen

from agentruns.domain.members import check_bound, check_members
from agentruns.domain.numbers import ExecutionCount, TokenCount
from agentruns.errors import InvalidValueError


@frozen(kw_only=True)
class Record:
    flag: bool = False
    count: ExecutionCount | None = None
    several: tuple[ExecutionCount | TokenCount, ...] = ()
    maybe: tuple[str, ...] | None = None

    def __attrs_post_init__(self) -> None:
        check_members(self)


def path(**members: object) -> tuple[str | int, ...]:
    with pytest.raises(InvalidValueError) as caught:
        Record(**members)  # type: ignore[arg-type]  # whatever the test says
    assert (caught.value.type_name, caught.value.reason) == ("Record", "wrong_type")
    return caught.value.path


def test_what_is_declared_is_accepted() -> None:
    Record(flag=True, count=ExecutionCount(1), several=(ExecutionCount(1), TokenCount(2)), maybe=("a",))
    assert Record(maybe=()) != Record()


def test_what_is_not_declared_is_refused_where_it_stands() -> None:
    assert path(flag=1) == ("flag",)
    assert path(count=1) == ("count",)
    assert path(count=TokenCount(1)) == ("count",)
    assert path(several=[]) == ("several",)
    assert path(several=None) == ("several",)
    assert path(several=(ExecutionCount(1), 2)) == ("several", 1)
    assert path(maybe="a") == ("maybe",)


def test_a_bound_includes_both_its_ends() -> None:
    for value in (0, 5):
        check_bound(Record(count=ExecutionCount(value)), "count", 0, 5)
    with pytest.raises(InvalidValueError) as caught:
        check_bound(Record(count=ExecutionCount(6)), "count", 0, 5)
    assert (caught.value.reason, caught.value.path) == ("out_of_range", ("count",))
