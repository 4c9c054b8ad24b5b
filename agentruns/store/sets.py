"""Build statements over sets: one array per column in, one row per item out.

The text of such a statement does not depend on the number of its items, so its plan is prepared once, and a single run
is a set of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import field, frozen
from sqlalchemy import (
    CTE,
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    FromClause,
    Integer,
    Select,
    Text,
    Uuid,
    bindparam,
    cast,
    column,
    func,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY, BYTEA
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeEngine

#: The position of an item in its set, counted from 1.
POSITION = "n"


class PlainArray(ARRAY[Any]):
    """An array whose values the driver takes and gives as they are; the general type looks at every one of them."""

    cache_ok = True
    render_bind_cast = True

    def adapt(self, cls: type[Any], **kw: Any) -> Any:
        """Stay of this class: the dialect's own array type would bring its processors back."""
        del cls, kw
        return PlainArray(self.item_type)

    def bind_processor(self, dialect: Dialect) -> None:
        """Change nothing."""
        del dialect

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        """Change nothing."""
        del dialect, coltype


def array_type(element: TypeEngine[Any]) -> TypeEngine[Any]:
    """Give the type in which a column's values travel in an array: its own, without a collation."""
    return Text() if isinstance(element, Text) else element


_Values: TypeAlias = Sequence[Any]

#: Types whose values need no quotes in the text of an array.
_PLAIN: Final = (Integer, Boolean, Uuid, DateTime)
#: What stands escaped between the quotes of an element.
_ESCAPED: Final = re.compile(r'(["\\])')
_ESCAPE: Final = r"\\\1"


def _plain(values: _Values) -> str:
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def _hexadecimal(values: _Values) -> str:
    return "{" + ",".join(["NULL" if value is None else f'"\\\\x{value.hex()}"' for value in values]) + "}"


def _quoted(values: _Values) -> str:
    """Quote texts all at once, unless there is none, or one of them is missing or has to be escaped."""
    if None not in values:
        joined = '","'.join(values)
        if joined.count('"') == 2 * len(values) - 2 and "\\" not in joined:
            return '{"' + joined + '"}'
    return "{" + ",".join(["NULL" if value is None else f'"{_ESCAPED.sub(_ESCAPE, value)}"' for value in values]) + "}"


def _writer(name: str, type_: TypeEngine[Any]) -> Callable[[_Values], str] | None:
    """Say how values travel as the text of an array; ``None`` for the driver's own form.

    The driver looks at each element of an array three times, as Python does, so what is short travels as text: that
    costs a third at most. What may be long, a body or a document, would be twice as long.
    """
    if isinstance(type_, _PLAIN):
        return _plain
    if isinstance(type_, Text):
        return _quoted
    return _hexadecimal if isinstance(type_, BYTEA) and name.endswith("digest") else None


def _bound(name: str, type_: TypeEngine[Any]) -> ColumnElement[Any]:
    if _writer(name, type_):
        return cast(bindparam(name, type_=Text()), ARRAY(array_type(type_)))
    return bindparam(name, type_=PlainArray(array_type(type_)))


@frozen
class ItemSet:
    """The items of one statement: a row for each, a bound array for each column.

    Attributes:
        name: prefix of the bound parameters.
        columns: name and type of each column, in the order of the rows given to :meth:`parameters`.
    """

    name: str
    columns: Mapping[str, TypeEngine[Any]]
    _values: Sequence[tuple[str, Callable[[_Values], object]]] = field(init=False, repr=False, eq=False)
    #: Most sets of a statement are empty most of the time.
    _nothing: Mapping[str, object] = field(init=False, repr=False, eq=False)

    @_values.default
    def _name_values(self) -> Sequence[tuple[str, Callable[[_Values], object]]]:
        return [(f"{self.name}_{name}", _writer(name, type_) or list) for name, type_ in self.columns.items()]

    @_nothing.default
    def _write_nothing(self) -> Mapping[str, object]:
        return {name: array(()) for name, array in self._values}

    def source(self) -> TableValuedAlias:
        """Render the arrays as a table with the columns and each item's position ``n``."""
        arrays = [_bound(f"{self.name}_{name}", type_) for name, type_ in self.columns.items()]
        typed = [column(name, array_type(type_)) for name, type_ in self.columns.items()]
        rows = func.unnest(*arrays).table_valued(*typed, with_ordinality=POSITION, name=self.name)
        return rows.render_derived()

    def parameters(self, rows: Iterable[Sequence[object]]) -> Mapping[str, object]:
        """Turn rows into one array per column; an instant is a :class:`Timestamp` or a ``datetime``."""
        transposed: list[Sequence[object]] = list(zip(*rows, strict=True))
        if not transposed:
            return self._nothing
        return {name: array(values) for (name, array), values in zip(self._values, transposed, strict=True)}


def columns_of(*columns: ColumnElement[Any]) -> dict[str, TypeEngine[Any]]:
    """Name the columns of an item after the columns of the tables that they go to."""
    return {each.key or "": each.type for each in columns}


#: The identity of a run in an item.
RUN: dict[str, TypeEngine[Any]] = {"tenant_id": Text(), "run_id": Uuid(as_uuid=False)}
#: A child row names its item by the item's position.
CHILD: dict[str, TypeEngine[Any]] = {"item": BigInteger()}


def materialized(statement: Select[Any], name: str) -> CTE:
    """Make a step of a statement that the planner neither repeats nor reorders."""
    return statement.cte(name).prefix_with("MATERIALIZED")


def clock_after(locked: FromClause) -> CTE:
    """Read the database's clock after the last lock of ``locked``: a decision never uses an instant before a wait."""
    every_lock = select(func.count().label("locks")).select_from(locked).subquery("every_lock")
    return materialized(select(func.clock_timestamp().label("now"), every_lock.c.locks), "clock")
