"""Give a statement as the driver takes it: its text, and the order of its values.

SQLAlchemy finds what it compiled by a key as large as the statement, and gathers the values by name at every execution.
For the two statements that every run is made of, that costs as much as sending them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Self, cast

from attrs import define, field, frozen
from sqlalchemy import BindParameter, ClauseElement, Dialect
from sqlalchemy.sql.compiler import SQLCompiler

from agentruns.errors import InvariantError


@frozen
class DriverText:
    """A compiled statement.

    Attributes:
        text: with positions for the values.
        constants: values that the statement itself brings, by the names of their positions.
    """

    text: str
    constants: Mapping[str, object]
    _in_order: Callable[[Mapping[str, object]], tuple[object, ...]]

    @classmethod
    def of(cls, compiled: SQLCompiler, dialect: Dialect) -> Self:
        """Take a compiled statement whose values the driver takes as they are.

        Raises:
            InvariantError: ``bind_processor``, one of them would have to be changed first.
        """
        if any(_is_processed(bind, dialect) for bind in compiled.bind_names):
            raise InvariantError(reason="bind_processor")
        constants = {name: bind.effective_value for bind, name in compiled.bind_names.items() if not bind.required}
        return cls(compiled.string, constants, _in_order(compiled.positiontup or ()))

    def values(self, given: Mapping[str, object]) -> tuple[object, ...]:
        """Put the values into the order of the text; each that the statement does not bring must be given."""
        return self._in_order({**self.constants, **given})


@define
class DriverTexts:
    """Keep the texts of one engine. Only statements that are built once in a process are looked for, so they are few.

    Attributes:
        names: of the schemas that stand for others in the statements.
    """

    names: Mapping[str, str]
    _kept: dict[ClauseElement, DriverText] = field(factory=dict, init=False)

    def find(self, statement: ClauseElement, dialect: Dialect) -> DriverText:
        """Give the text of a statement."""
        found = self._kept.get(statement)
        if found is None:
            compiled = statement.compile(
                dialect=dialect, schema_translate_map=self.names, render_schema_translate=bool(self.names)
            )
            found = self._kept[statement] = DriverText.of(cast("SQLCompiler", compiled), dialect)
        return found


def _in_order(names: Sequence[str]) -> Callable[[Mapping[str, object]], tuple[object, ...]]:
    """Take values by their names; an ``itemgetter`` of one name would give no tuple."""
    return itemgetter(*names) if len(names) > 1 else lambda given: tuple(given[name] for name in names)


def _is_processed(bind: BindParameter[Any], dialect: Dialect) -> bool:
    return bind.type.dialect_impl(dialect).bind_processor(dialect) is not None
