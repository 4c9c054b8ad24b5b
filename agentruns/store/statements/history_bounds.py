"""Say which part of a run's history a statement is about."""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen
from sqlalchemy import BigInteger, Boolean, ColumnElement, Table, Text, Uuid, and_, bindparam, false, literal, or_, true

TENANT: Final = bindparam("tenant_id", type_=Text())
RUN: Final = bindparam("run_id", type_=Uuid(as_uuid=False))
_LAST: Final = 2**63 - 1
_NEVER: Final = false()


def of_run(table: Table) -> ColumnElement[bool]:
    """Whether a row is of the run given."""
    return and_(table.c.tenant_id == TENANT, table.c.run_id == RUN)


@frozen
class Bounds:
    """Which part of a history is wanted.

    Attributes:
        after: the last event that is not.
        until: the last event that is.
        first: superstep of checkpoints, attempts and results; what it wrote up to ``after`` is not wanted again.
        last: likewise; what it wrote beyond ``until`` is not wanted yet. Of the supersteps between, every row is,
            wherever it claims to belong.
        with_base: whether the checkpoint that ``first`` began with is wanted all the same.
    """

    after: ColumnElement[Any]
    until: ColumnElement[Any]
    first: ColumnElement[Any]
    last: ColumnElement[Any]
    with_base: ColumnElement[bool]

    def holds(self, sequence: ColumnElement[Any]) -> ColumnElement[bool]:
        """Whether an event is wanted."""
        return sequence.between(self.after + 1, self.until)

    def holds_row(self, table: Table, *, begins: ColumnElement[bool] = _NEVER) -> ColumnElement[bool]:
        """Whether a row of a superstep is wanted; the range alone is what the primary key is searched with."""
        superstep, sequence = table.c.superstep, table.c.sequence
        return and_(
            superstep.between(self.first, self.last),
            or_(superstep > self.first, sequence > self.after, begins),
            or_(superstep < self.last, sequence <= self.until),
        )

    def holds_checkpoint(self, table: Table) -> ColumnElement[bool]:
        """As :meth:`holds_row`, or the checkpoint that the first superstep began with."""
        return self.holds_row(table, begins=self.with_base)


#: What the parameters say.
GIVEN: Final = Bounds(
    bindparam("after_sequence", type_=BigInteger()),
    bindparam("until_sequence", type_=BigInteger()),
    bindparam("first_superstep", type_=BigInteger()),
    bindparam("last_superstep", type_=BigInteger()),
    bindparam("with_base", type_=Boolean()),
)
#: All of it.
ALL: Final = Bounds(
    literal(0, BigInteger()),
    literal(_LAST, BigInteger()),
    literal(0, BigInteger()),
    literal(_LAST, BigInteger()),
    true(),
)
