"""Remove what fair scheduling leaves behind: a small row for each turn that was reserved."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import Connection

from agentruns.operations.retention_transactions import RetentionTransactions
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.runtime.retry import as_store_error
from agentruns.store.options import check_count, check_duration
from agentruns.store.verification import verify_revisions

SHORTEST_WINDOW: Final = timedelta(hours=1)
LONGEST_WINDOW: Final = timedelta(days=366)
#: Reservations that one call removes at most.
MOST_RESERVATIONS: Final = 10_000


def prune_reservations(
    connection: Connection, window: timedelta, *, limit: int = MOST_RESERVATIONS, schema: str = SCHEMA_TOKEN
) -> int:
    """Remove the oldest reservations that were made longer ago than ``window``, in one transaction, and count them.

    Fewer than ``limit`` are the last: call again until then. Several processes may prune at once and share the work. No
    cycle moves and no later turn changes, but whoever repeats the reservation of a removed id takes a turn of its own;
    a worker repeats one for seconds at most.

    Args:
        connection: open, and in no transaction; its isolation becomes READ COMMITTED. Under the retention role, whose
            privileges suffice.
        window: how long a reservation is kept, by the database's clock: 1 hour..366 days.
        limit: 1..10 000.
        schema: the database schema.

    Raises:
        InvalidOptionError: ``window`` or ``limit`` is out of its bound; nothing was sent.
        TypeError: an argument is of another type.
        SchemaVerificationError: the schema is not what this release needs.
        StoreUnavailableError: the database's trouble passes; call again.
    """
    check_duration("window", window, low=SHORTEST_WINDOW, high=LONGEST_WINDOW)
    check_count("limit", limit, low=1, high=MOST_RESERVATIONS)
    transactions = RetentionTransactions(connection, schema)
    with as_store_error(schema), transactions.begun() as retention:
        verify_revisions(connection, schema=schema)
        retention.permit(schema)
        return retention.prune_reservations(window, limit=limit)
