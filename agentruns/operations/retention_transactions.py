"""Give retention its transactions: short ones, each of which is over before anybody else's code runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from attrs import frozen
from sqlalchemy import Connection

from agentruns.errors import SchemaVerificationError
from agentruns.runtime.arguments import check_argument
from agentruns.store.options import check_schema_name
from agentruns.store.retention import FIRST, LAST, RemovableRun, Retention, Terms
from agentruns.store.statements.retention import TABLES
from agentruns.store.statements.retention_reads import PAGE, Cause
from agentruns.store.unit_of_work import UnitOfWork

#: Tables that name runs without being a part of them.
NO_PART: frozenset[str] = frozenset({"tenant_slots"})


@frozen
class RetentionTransactions:
    """Begin transactions on a connection that is in none; they are READ COMMITTED, whatever its engine says.

    A stricter level would turn rows that others have removed meanwhile into errors, and in autocommit the permission to
    delete would be over before the delete.
    """

    connection: Connection
    schema: str

    def __attrs_post_init__(self) -> None:
        check_argument("connection", self.connection, Connection)
        check_schema_name(self.schema)
        self.connection.execution_options(isolation_level="READ COMMITTED")

    @contextmanager
    def begun(self) -> Iterator[Retention]:
        """Work in one transaction, which is committed unless the block raises."""
        with self.connection.begin():
            yield Retention(UnitOfWork(self.connection, schema=self.schema))

    def removable(self, terms: Terms, cause: Cause) -> Iterator[RemovableRun]:
        """Read every run that may go now, a page in each transaction."""
        after = FIRST
        while True:
            with self.begun() as retention:
                page = retention.removable(terms, cause, after=after, until=LAST)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].place

    def now(self) -> datetime:
        """Read the database's clock."""
        with self.begun() as retention:
            return retention.now()

    def check_tables(self) -> None:
        """Refuse a schema with other tables of runs than those that a removal empties: what is left would be a stray.

        A newer schema beside which this release may run can have such a table, so the revisions alone do not tell; and
        the catalogue needs no privilege.

        Raises:
            SchemaVerificationError: a newer revision has added one, or one is missing.
        """
        with self.begun() as retention:
            found = retention.tables_of_runs(self.schema) - NO_PART
        if not found:
            raise SchemaVerificationError(reason="not_migrated", schema=self.schema)
        if unknown := found - TABLES.keys():
            raise SchemaVerificationError(reason="ahead", schema=self.schema, findings=tuple(sorted(unknown)))
        if missing := TABLES.keys() - found:
            raise SchemaVerificationError(reason="incomplete", schema=self.schema, findings=tuple(sorted(missing)))
