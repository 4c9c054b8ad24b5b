"""The unit of work: repositories over one connection, in a transaction of our own or inside the caller's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable, Select, Text, func, select
from sqlalchemy.orm import Session

from agentruns.errors import UnitOfWorkError
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.store.admissions import Admissions
from agentruns.store.control_commits import ControlCommits
from agentruns.store.discovery import Discovery
from agentruns.store.driver_texts import DriverTexts
from agentruns.store.explanations import Explanations
from agentruns.store.fairness import Fairness
from agentruns.store.gates import Gates
from agentruns.store.graphs import Graphs
from agentruns.store.journal import Journal
from agentruns.store.keys import SubmissionKeys
from agentruns.store.leases import Leases
from agentruns.store.options import check_schema_name
from agentruns.store.quarantines import Quarantines
from agentruns.store.runs import Runs
from agentruns.store.tenant_limits import TenantLimits
from agentruns.store.waits import Waits
from agentruns.store.wake_ups import WakeUps


class UnitOfWork:
    """Give the repositories of one connection.

    On a connection of ours, which is in autocommit, each repository method is one statement and therefore one
    transaction. Joined, every statement belongs to the caller's transaction: it is never begun, committed, rolled back,
    flushed or retried here, and no second connection is used.
    """

    def __init__(self, connection: Connection, *, schema: str = SCHEMA_TOKEN, texts: DriverTexts | None = None) -> None:
        self.connection = connection
        self._texts = texts
        names = schema_names(schema)
        self._options: dict[str, Any] = {"schema_translate_map": names} if names else {}

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

    def rows(self, statement: Select[Any], parameters: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        """Send one statement of the path of every run; on a connection of ours as the driver takes it."""
        if self._texts is None:
            return self.execute(statement, parameters).all()
        found = self._texts.find(statement, self.connection.dialect)
        return self.connection.exec_driver_sql(found.text, found.values(parameters)).all()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep on a connection of ours, which has sent nothing yet, what the block locks until it ends.

        It is READ COMMITTED: each statement sees what others committed before it. An error undoes the block.
        """
        self.connection.execution_options(isolation_level="READ COMMITTED")
        with self.connection.begin():
            yield

    def is_read_only(self) -> bool:
        """Ask whether the transaction may not write: an insert that the server refuses would abort it."""
        setting = func.current_setting("transaction_read_only", type_=Text())
        found: str = self.execute(select(setting)).scalar_one()
        return found == "on"

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
    def control(self) -> ControlCommits:
        """What the control plane commits."""
        return ControlCommits(self)

    @cached_property
    def leases(self) -> Leases:
        """Leases: who may write for a run, and until when."""
        return Leases(self)

    @cached_property
    def discovery(self) -> Discovery:
        """What may be claimed, and who has work."""
        return Discovery(self)

    @cached_property
    def gates(self) -> Gates:
        """When runs open that nobody can claim now."""
        return Gates(self)

    @cached_property
    def fairness(self) -> Fairness:
        """Cycles of fair scheduling."""
        return Fairness(self)

    @cached_property
    def journal(self) -> Journal:
        """The evidence of a run, in reading order."""
        return Journal(self)

    @cached_property
    def quarantines(self) -> Quarantines:
        """Isolated runs."""
        return Quarantines(self)

    @cached_property
    def waits(self) -> Waits:
        """What runs wait for."""
        return Waits(self)

    @cached_property
    def explanations(self) -> Explanations:
        """Why runs do not progress."""
        return Explanations(self)

    @cached_property
    def tenant_limits(self) -> TenantLimits:
        """How many leases of a tenant may live at once."""
        return TenantLimits(self)

    @cached_property
    def wake_ups(self) -> WakeUps:
        """Tell workers that there may be something for them."""
        return WakeUps(self)


def schema_names(schema: str) -> dict[str, str]:
    """Say which schema stands for another one in every statement.

    The models' own name needs no translation, which would rewrite a statement's text at every execution.
    """
    return {} if check_schema_name(schema) == SCHEMA_TOKEN else {SCHEMA_TOKEN: schema}
