"""Remove reservations that nobody may ask for again."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import BigInteger, Select, bindparam, delete, func, select

from agentruns.store.sets import materialized
from agentruns.store.statements.retention_reads import before
from agentruns.store.tables import reservations

_KEY: Final = (reservations.c.shard_id, reservations.c.reservation_id)


@cache
def prune() -> Select[Any]:
    """Remove the oldest reservations of all shards, and count them; those that others remove are passed over.

    The rows of shards are neither read nor locked, so no place in a cycle moves and nobody who reserves waits.
    """
    old = materialized(
        select(*_KEY)
        .where(reservations.c.reserved_at < before("window"))
        .order_by(reservations.c.reserved_at, reservations.c.shard_id, reservations.c.sequence)
        .limit(bindparam("limit", type_=BigInteger()))
        .with_for_update(skip_locked=True),
        "old",
    )
    removed = (
        delete(reservations)
        .where(reservations.c.shard_id == old.c.shard_id, reservations.c.reservation_id == old.c.reservation_id)
        .returning(reservations.c.sequence)
        .cte("removed")
    )
    return select(func.count()).select_from(removed)
