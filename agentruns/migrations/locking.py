"""Let one migration run at a time: a lock of the database between processes, a lock of the process within it."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, Protocol

from alembic.runtime.migration import MigrationContext
from sqlalchemy import BigInteger, Connection, bindparam, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from agentruns.errors import ContentionError, UnitOfWorkError
from agentruns.migrations.manifest import check_files
from agentruns.store.transient import sqlstate_of

LOCK_WAIT: Final = timedelta(minutes=5)
_DDL_WAIT: Final = "lock_timeout = '5s'"
_LOCK_NOT_AVAILABLE: Final = "55P03"
_PAUSE: Final = 0.02

#: Alembic's ``op`` is one for the process, so migrations of one process follow each other.
_process = threading.Lock()

_HOLDER: Final = text("""
SELECT l.pid, a.application_name, extract(epoch FROM clock_timestamp() - a.xact_start)::bigint AS age
FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid = l.pid
JOIN pg_catalog.pg_database AS d ON d.oid = l.database AND d.datname = current_database()
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.classid::bigint = (:key >> 32) & 4294967295 AND l.objid::bigint = :key & 4294967295
""").bindparams(bindparam("key", type_=BigInteger()))


class Environment(Protocol):
    """What an ``env.py`` calls ``context``."""

    def get_context(self) -> MigrationContext:
        """Give the migration context that was configured."""


@contextmanager
def alone_in_process() -> Iterator[None]:
    """Wait for the other migrations of this process, without holding up the event loop that one of them may need."""
    if in_greenlet():
        while not _process.acquire(blocking=False):
            await_only(asyncio.sleep(_PAUSE))
    else:
        _process.acquire()
    try:
        yield
    finally:
        _process.release()


def lock_key(schema: str) -> int:
    """Give the key of the advisory lock under which a schema is migrated."""
    digest = hashlib.sha256(b"agentruns.migrate.v1\0" + schema.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def wait_turn(context: Environment | MigrationContext, *, lock_wait: timedelta = LOCK_WAIT) -> None:
    """Wait until no other process migrates the schema; call it inside the transaction, before ``run_migrations``.

    Raises:
        SchemaVerificationError: ``tampered``: a file of ours is not the one that was released; nothing was sent.
        UnitOfWorkError: the connection is in autocommit; nothing was sent.
        ContentionError: another process held the lock for all of ``lock_wait``.
    """
    migration = context if isinstance(context, MigrationContext) else context.get_context()
    schema = migration.opts.get("agentruns_schema") or "agentruns"
    check_files(schema)
    key = lock_key(schema)
    wait = f"lock_timeout = '{max(1, lock_wait // timedelta(milliseconds=1))}ms'"
    connection = migration.connection
    is_per_revision = bool(migration.opts.get("transaction_per_migration"))
    if migration.as_sql or connection is None:
        for statement in _written(key, wait, is_per_revision=is_per_revision):
            migration.execute(statement)
        return
    require_transactions(connection)
    if is_per_revision:
        _lock_session(connection, key, wait)
    else:
        _lock_transaction(connection, key, wait)


def require_transactions(connection: Connection) -> None:
    """Refuse autocommit, in which a failure would leave half of a revision.

    Raises:
        UnitOfWorkError: ``autocommit``.
    """
    driver_connection = connection.connection.dbapi_connection
    if driver_connection is not None and connection.dialect.detect_autocommit_setting(driver_connection):
        raise UnitOfWorkError(reason="autocommit")


def _written(key: int, wait: str, *, is_per_revision: bool) -> tuple[str, str, str]:
    """Write what a script begins with: in its one transaction, or before the first of many for its session."""
    if is_per_revision:
        return f"SET {wait}", f"SELECT pg_advisory_lock({key})", f"SET {_DDL_WAIT}"
    return f"SET LOCAL {wait}", f"SELECT pg_advisory_xact_lock({key})", f"SET LOCAL {_DDL_WAIT}"


def _lock_transaction(connection: Connection, key: int, wait: str) -> None:
    # A stricter level would read the heads as they were before the wait.
    connection.execute(text("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"))
    connection.execute(text(f"SET LOCAL {wait}"))
    with _told_who_holds(connection, key), connection.begin_nested():
        connection.execute(text(f"SELECT pg_advisory_xact_lock({key})"))
    connection.execute(text(f"SET LOCAL {_DDL_WAIT}"))


def _lock_session(connection: Connection, key: int, wait: str) -> None:
    """Hold the lock on a connection of its own, until the migrating one goes back to its pool."""
    turn = connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        turn.execute(text(f"SET {wait}"))
        with _told_who_holds(turn, key):
            turn.execute(text(f"SELECT pg_advisory_lock({key})"))
    except BaseException:
        turn.invalidate()
        raise
    connection.execute(text(f"SET {_DDL_WAIT}"))
    migrating = connection.connection.record_info

    def let_go(_: object, record: Any) -> None:
        if record.record_info is migrating and not turn.closed:
            record.invalidate(soft=True)  # its setting is not for whoever comes next
            turn.invalidate()
            turn.close()

    event.listen(connection.engine.pool, "checkin", let_go)


@contextmanager
def _told_who_holds(connection: Connection, key: int) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if sqlstate_of(error) != _LOCK_NOT_AVAILABLE:
            raise
        holders = connection.execute(_HOLDER, {"key": key}).all()
        described = "; ".join(f"pid {row.pid}, {row.application_name or 'unnamed'}, {row.age} s" for row in holders)
        raise ContentionError(reason="migration_lock", holder=described) from error
