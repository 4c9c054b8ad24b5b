"""Publish graph definitions to tenants: a version is immutable for ever."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import Select, and_, func, select
from sqlalchemy.dialects.postgresql import insert

from agentruns.store.sets import POSITION, ItemSet, columns_of
from agentruns.store.tables import graphs

IDENTITY: Final = (
    graphs.c.tenant_id,
    graphs.c.graph_owner_issuer,
    graphs.c.graph_owner_subject,
    graphs.c.graph_name,
    graphs.c.graph_version,
)
DEFINITIONS: Final = ItemSet("item", columns_of(*IDENTITY, graphs.c.definition_digest, graphs.c.definition))
IDENTITIES: Final = ItemSet("item", columns_of(*IDENTITY))


@cache
def publish() -> Select[Any]:
    """Insert the definitions that the tenants do not have; a row comes back for each that was inserted."""
    item = DEFINITIONS.source()
    names = [*DEFINITIONS.columns, "created_at"]
    rows = select(*(item.c[name] for name in DEFINITIONS.columns), func.clock_timestamp()).order_by(
        *(item.c[column.name] for column in IDENTITY)
    )
    # The first definition of a version stays; a second one inserts nothing, whatever it says.
    statement = insert(graphs).from_select(names, rows).on_conflict_do_nothing()
    inserted = statement.returning(*IDENTITY).cte("inserted")
    return select(*inserted.c)


@cache
def published() -> Select[Any]:
    """Read the digests that stand under identities; nothing for one that the tenant does not have."""
    item = IDENTITIES.source()
    is_same = and_(*(graphs.c[column.name] == item.c[column.name] for column in IDENTITY))
    return select(item.c[POSITION], graphs.c.definition_digest).join_from(item, graphs, is_same)
