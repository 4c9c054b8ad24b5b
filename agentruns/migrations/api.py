"""Migrate a schema over a connection that the caller opened, or write the script that does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO

from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text

from agentruns.migrations import environment
from agentruns.migrations.frozen import create_schema
from agentruns.migrations.locking import LOCK_WAIT, alone_in_process, require_transactions, wait_turn
from agentruns.migrations.translate import translated
from agentruns.runtime.telemetry.upkeep import observed_migration
from agentruns.store.options import check_schema_name

__all__ = ["downgrade", "require_transactions", "sql", "upgrade"]


def upgrade(
    connection: Connection, *, schema: str = "agentruns", to: str = "head", lock_wait: timedelta = LOCK_WAIT
) -> None:
    """Bring a schema up to a revision, in one transaction: all of it or nothing.

    In the caller's transaction when there is one, which the caller then commits; else in one of its own. With an
    asynchronous engine: ``await connection.run_sync(migrations.upgrade)``.

    Args:
        connection: open, and not in autocommit.
        schema: the schema, created where it is missing.
        to: ``head``, a revision's id or its number.
        lock_wait: how long to wait for another process that migrates the schema.

    Raises:
        SchemaVerificationError: ``already_applied``, ``behind``, ``tampered`` or ``unsupported_server``.
        UnitOfWorkError: the connection is in autocommit.
        ContentionError: another process held the lock for all of ``lock_wait``.
        CorruptDataError: a run that is to get its submission row has no admission in its journal; it is named.
    """
    check_schema_name(schema)

    def migrate() -> None:
        context = environment.configured(connection, environment.upgrade_to(to), schema=schema)
        with observed_migration(to=to), context.begin_transaction():
            wait_turn(context, lock_wait=lock_wait)
            connection.execute(text(create_schema(schema)))
            environment.run(context)

    _alone(schema, migrate)


def downgrade(
    connection: Connection,
    *,
    to: str,
    schema: str = "agentruns",
    destroy_evidence: str | None = None,
    lock_wait: timedelta = LOCK_WAIT,
) -> None:
    """Take a schema down to a revision, dropping families that are empty.

    Args:
        connection: open, and not in autocommit.
        to: ``base``, a revision's id or its number.
        schema: the schema.
        destroy_evidence: the schema's name once more, to drop families that hold rows too.
        lock_wait: how long to wait for another process that migrates the schema.

    Raises:
        SchemaVerificationError: ``tampered``.
        UnitOfWorkError: the connection is in autocommit.
        ContentionError: another process held the lock for all of ``lock_wait``.
        RefusedError: a family holds a row (``downgrade_destroys_evidence``).
    """
    check_schema_name(schema)

    def migrate() -> None:
        plan = environment.downgrade_to(to)
        context = environment.configured(connection, plan, schema=schema, agentruns_destroy=destroy_evidence)
        with context.begin_transaction():
            wait_turn(context, lock_wait=lock_wait)
            environment.run(context)

    _alone(schema, migrate)


def sql(from_: str = "base", to: str = "head", *, schema: str = "agentruns") -> str:
    """Write the script that ``psql -v ON_ERROR_STOP=1`` replays: lock, guards, DDL, records and version table."""
    check_schema_name(schema)
    buffer = StringIO()

    def migrate() -> None:
        context: MigrationContext = environment.written(environment.upgrade_to(to), buffer, schema=schema, start=from_)
        with context.begin_transaction():
            wait_turn(context)
            context.execute(create_schema(schema))
            environment.run(context)

    _alone(schema, migrate)
    return buffer.getvalue()


def _alone(schema: str, migrate: Callable[[], None]) -> None:
    with alone_in_process(), translated(schema):
        migrate()
