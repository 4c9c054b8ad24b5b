"""Give every row its metadata: the token schema, the names of constraints and the type of each column."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final

from sqlalchemy import BigInteger, DateTime, ForeignKeyConstraint, Integer, MetaData, SmallInteger, Table, Text, Uuid
from sqlalchemy.dialects.postgresql import BYTEA
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

#: Stands for the schema in every model; a store translates it to the name in use with each statement.
SCHEMA_TOKEN: Final = "agentruns"  # noqa: S105 - the name of a schema

NAMING: Final = {
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(constraint_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(constraint_name)s",
    "ix": "ix_%(table_name)s_%(constraint_name)s",
}

_MAY_CHANGE: Final = "may_change"

#: A ``uuid``, read and written as its 36 characters.
Id = Annotated[str, "uuid"]
#: A ``smallint``: an ordinal that stays small.
Small = Annotated[int, "smallint"]
#: An ``integer``: a count that one table's row bounds.
Medium = Annotated[int, "integer"]


class Base(DeclarativeBase):
    """Declare a table. A row is what is stored and has no behaviour."""

    metadata = MetaData(schema=SCHEMA_TOKEN, naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text(collation="C"),
        bytes: BYTEA(),
        int: BigInteger(),
        datetime: DateTime(timezone=True),
        Id: Uuid(as_uuid=False),
        Small: SmallInteger(),
        Medium: Integer(),
    }


class OfRun:
    """Key a row by its run."""

    tenant_id: Mapped[str] = mapped_column(
        primary_key=True, sort_order=-5, comment="Key: the tenant that owns the run."
    )
    run_id: Mapped[Id] = mapped_column(primary_key=True, sort_order=-4, comment="Key: the run.")


class OfNode(OfRun):
    """Key a row by an attempt of a node: the activation is a superstep and a node of it."""

    superstep: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, sort_order=-3, comment="Key: the superstep of the activation."
    )
    node_id: Mapped[str] = mapped_column(primary_key=True, sort_order=-2, comment="Key: the node of the activation.")
    attempt: Mapped[Small] = mapped_column(
        primary_key=True, autoincrement=False, sort_order=-1, comment="Key: the number of the attempt, counted from 1."
    )


class WithEvent:
    """Point a row at the event that it was committed with, whose instant is the row's."""

    sequence: Mapped[int] = mapped_column(
        sort_order=1, comment="Projection: the event that the row was committed with."
    )


def may_change(*columns: str) -> dict[str, tuple[str, ...]]:
    """Name, for a table's ``info``, all columns that an update may change; a table without it is insert-only."""
    return {_MAY_CHANGE: columns}


def changeable_columns(table: Table) -> tuple[str, ...]:
    """Give the columns of a table that an update may change."""
    columns: tuple[str, ...] = table.info.get(_MAY_CHANGE, ())
    return columns


def belongs_to(name: str, parent: str, *key: str) -> ForeignKeyConstraint:
    """Point a row at its parent, which carries the same key: the run and, where given, more of it."""
    columns = ["tenant_id", "run_id", *key]
    return ForeignKeyConstraint(columns, [f"{SCHEMA_TOKEN}.{parent}.{column}" for column in columns], name=name)
