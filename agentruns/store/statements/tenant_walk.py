"""Walk an index that begins with the tenant from one tenant to the next, passing over all rows between them.

PostgreSQL has no plan of this kind of its own: to list the tenants of an index it reads every entry. Here each step is
one descent into the index, so a walk costs what it visits, and nobody's backlog makes it longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from sqlalchemy import CTE, ColumnElement, Select, Text, bindparam, literal_column, select

#: Give the next tenant that follows another one, as one value, or null where none does.
Next: TypeAlias = Callable[[ColumnElement[Any]], ColumnElement[Any]]

#: Where a walk begins. An empty text precedes every tenant.
AFTER: Final = bindparam("after", type_=Text())
#: As many rows as a probe reads. It stands in the text: a plan that is made once must know that few rows come.
ONE: Final[ColumnElement[Any]] = literal_column("1")


def walk(name: str, following: Next, *, after: ColumnElement[Any]) -> CTE:
    """Visit tenants in the order of their ids; a last row, without a tenant, ends the walk.

    The steps are taken as they are asked for: whoever reads with a limit walks no further than it needs.
    """
    steps = select(following(after).label("tenant_id")).cte(name, recursive=True)
    further = select(following(steps.c.tenant_id).label("tenant_id")).where(steps.c.tenant_id.is_not(None))
    return steps.union_all(further)


def probe(statement: Select[Any]) -> ColumnElement[Any]:
    """Read the first row of a statement as one value: always a look-up of its own, and never made a join of."""
    return statement.limit(ONE).scalar_subquery()
