"""Build statements over sets: one array per column in, one row per item out.

The text of such a statement does not depend on the number of its items, so its plan is prepared once, and a single run
is a set of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen
from sqlalchemy import CTE, BigInteger, FromClause, Select, Text, Uuid, bindparam, column, func, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import TableValuedAlias
from sqlalchemy.types import TypeEngine

#: The position of an item in its set, counted from 1.
POSITION = "n"


def array_type(element: TypeEngine[Any]) -> TypeEngine[Any]:
    """Give the type in which a column's values travel in an array: its own, without a collation."""
    return Text() if isinstance(element, Text) else element


@frozen
class ItemSet:
    """The items of one statement: a row for each, a bound array for each column.

    Attributes:
        name: prefix of the bound parameters.
        columns: name and type of each column, in the order of the rows given to :meth:`parameters`.
    """

    name: str
    columns: Mapping[str, TypeEngine[Any]]

    def source(self) -> TableValuedAlias:
        """Render the arrays as a table with the columns and each item's position ``n``."""
        arrays = [
            bindparam(f"{self.name}_{name}", type_=ARRAY(array_type(type_))) for name, type_ in self.columns.items()
        ]
        typed = [column(name, array_type(type_)) for name, type_ in self.columns.items()]
        rows = func.unnest(*arrays).table_valued(*typed, with_ordinality=POSITION, name=self.name)
        return rows.render_derived()

    def parameters(self, rows: Iterable[Sequence[object]]) -> dict[str, list[object]]:
        """Turn rows into one array per column."""
        transposed = [list(values) for values in zip(*rows, strict=True)] or [[] for _ in self.columns]
        return {f"{self.name}_{name}": values for name, values in zip(self.columns, transposed, strict=True)}


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
