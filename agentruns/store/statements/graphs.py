"""Publish graph definitions to tenants: a version is immutable for ever. And read them, and which of them runs pin."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import Select, and_, bindparam, func, literal_column, select
from sqlalchemy.dialects.postgresql import insert

from agentruns.orm.runs import LIVE
from agentruns.store.sets import POSITION, ItemSet, columns_of
from agentruns.store.tables import graphs, runs

IDENTITY: Final = (
    graphs.c.tenant_id,
    graphs.c.graph_owner_issuer,
    graphs.c.graph_owner_subject,
    graphs.c.graph_name,
    graphs.c.graph_version,
)
DEFINITIONS: Final = ItemSet("item", columns_of(*IDENTITY, graphs.c.definition_digest, graphs.c.definition))
IDENTITIES: Final = ItemSet("item", columns_of(*IDENTITY))
#: In words and not as parameters, so that the server proves the condition of the index ``live`` from it.
_IS_LIVE: Final = runs.c.status.in_([literal_column(f"'{status}'") for status in LIVE])


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


@cache
def listed() -> Select[Any]:
    """Read what a tenant has, each version with the number of live runs that pin it."""
    pinned = (
        select(func.count())
        .where(
            runs.c.tenant_id == graphs.c.tenant_id,
            runs.c.graph_definition_digest == graphs.c.definition_digest,
            _IS_LIVE,
        )
        .scalar_subquery()
        .label("live_runs")
    )
    size = func.octet_length(graphs.c.definition).label("bytes")
    return (
        select(*IDENTITY[1:], graphs.c.definition_digest, graphs.c.created_at, size, pinned)
        .where(graphs.c.tenant_id == bindparam("tenant_id"))
        .order_by(graphs.c.graph_name, graphs.c.created_at, *IDENTITY[1:])
    )


@cache
def definition() -> Select[Any]:
    """Read the definition that a tenant has under a digest."""
    return select(graphs.c.definition).where(
        graphs.c.tenant_id == bindparam("tenant_id"), graphs.c.definition_digest == bindparam("definition_digest")
    )


@cache
def pinned() -> Select[Any]:
    """Read which graphs the live runs of all tenants pin, from the index ``live`` alone, and what they are called."""
    live = (
        select(runs.c.tenant_id, runs.c.graph_definition_digest, func.count().label("live_runs"))
        .where(_IS_LIVE, runs.c.graph_definition_digest.is_not(None))
        .group_by(runs.c.tenant_id, runs.c.graph_definition_digest)
        .cte("live")
    )
    is_same = and_(graphs.c.tenant_id == live.c.tenant_id, graphs.c.definition_digest == live.c.graph_definition_digest)
    return (
        select(*live.c, graphs.c.graph_name, graphs.c.graph_version)
        .join_from(live, graphs, is_same, isouter=True)
        .order_by(live.c.tenant_id, live.c.graph_definition_digest)
    )
