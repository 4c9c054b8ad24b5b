"""The unit of work: repositories over one connection, in a transaction of our own or inside the caller's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable
from sqlalchemy.orm import Session

from agentruns.errors import UnitOfWorkError
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.store.admissions import Admissions
from agentruns.store.graphs import Graphs
from agentruns.store.journal import Journal
from agentruns.store.keys import SubmissionKeys
from agentruns.store.leases import Leases
from agentruns.store.options import check_schema_name
from agentruns.store.quarantines import Quarantines
from agentruns.store.runs import Runs


class UnitOfWork:
    """Give the repositories of one connection.

    On a connection of ours, which is in autocommit, each repository method is one statement and therefore one
    transaction. Joined, every statement belongs to the caller's transaction: it is never begun, committed, rolled back,
    flushed or retried here, and no second connection is used.
    """

    def __init__(self, connection: Connection, *, schema: str = SCHEMA_TOKEN) -> None:
        self.connection = connection
        self._options = {"schema_translate_map": {SCHEMA_TOKEN: check_schema_name(schema)}}

    @classmethod
    def joined(cls, transaction: Session | Connection, *, schema: str = SCHEMA_TOKEN) -> UnitOfWork:
        """Join the caller's transaction.

        Raises:
            UnitOfWorkError: the connection is in autocommit, where "your rows and my run" would be two commits.
            TypeError: neither a session nor a connection of SQLAlchemy was passed.
        """
        if isinstance(transaction, Session):
            transaction = transaction.connection()
        if not isinstance(transaction, Connection):
            raise TypeError(f"pass a SQLAlchemy Session or Connection, not {type(transaction).__name__}")
        driver_connection = transaction.connection.dbapi_connection
        if driver_connection is None or transaction.dialect.detect_autocommit_setting(driver_connection):
            raise UnitOfWorkError(reason="autocommit")
        return cls(transaction, schema=schema)

    def execute(self, statement: Executable, parameters: Mapping[str, Any] | None = None) -> CursorResult[Any]:
        """Send one statement, in the schema of this unit of work."""
        return self.connection.execute(statement, parameters, execution_options=self._options)

    @cached_property
    def graphs(self) -> Graphs:
        """Graph definitions of a tenant."""
        return Graphs(self)

    @cached_property
    def admissions(self) -> Admissions:
        """Admissions and the rows that are born with them."""
        return Admissions(self)

    @cached_property
    def keys(self) -> SubmissionKeys:
        """Submission keys, the arbiter of admissions."""
        return SubmissionKeys(self)

    @cached_property
    def runs(self) -> Runs:
        """Runs: their commits, and the ends of their evidence."""
        return Runs(self)

    @cached_property
    def leases(self) -> Leases:
        """Leases: who may write for a run, and until when."""
        return Leases(self)

    @cached_property
    def journal(self) -> Journal:
        """The evidence of a run, in reading order."""
        return Journal(self)

    @cached_property
    def quarantines(self) -> Quarantines:
        """Isolated runs."""
        return Quarantines(self)
