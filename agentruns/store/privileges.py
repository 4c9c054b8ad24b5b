"""Say what each role holds: the one table that grants are made from and audits and verification compare with.

The migrator is in no table: it owns the schema, and so holds everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cache
from typing import Final, Literal

from attrs import evolve, frozen
from sqlalchemy import Table

from agentruns.orm import Base
from agentruns.orm.base import SCHEMA_TOKEN, changeable_columns
from agentruns.store.released import released_catalogue


class Role(Enum):
    """Name a job, of which somebody's database role has one."""

    RUNTIME = "runtime"
    OPERATOR = "operator"
    READER = "reader"
    EVIDENCE_READER = "evidence reader"
    RETENTION = "retention"


@frozen(order=True)
class Privilege:
    """Let a role do one thing to one object of the schema, or to the schema itself.

    Attributes:
        kind: ``relation`` is a table or a view.
        name: of the object, without the schema; empty for the schema.
        column: the column, empty where the privilege is on the whole object.
        action: as PostgreSQL spells it.
        grantable: the role may pass it on, which none of ours may.
    """

    kind: Literal["schema", "relation", "function"]
    name: str
    column: str
    action: str
    grantable: bool = False

    def __str__(self) -> str:
        of_column = f" ({self.column})" if self.column else ""
        option = " with grant option" if self.grantable else ""
        return f"{self.action}{of_column} on {self.name or 'the schema'}{option}"


_TABLES: Final = tuple(Base.metadata.tables.values())
#: Written by migrations, by retention and by an operator alone.
_WRITTEN_BY_OTHERS: Final = frozenset({"applied_revisions", "retention_receipts", "run_quarantine_releases"})
#: Locking a row asks for ``UPDATE`` of some column. A trigger refuses every update of these two.
_LOCKED_BY_RETENTION: Final = (("runs", "thread_id"), ("scheduler_fairness_reservations", "slot"))

_USE_SCHEMA: Final = Privilege("schema", "", "", "USAGE")


@cache
def expected(role: Role) -> frozenset[Privilege]:
    """Give everything that a role holds. All of them see which revisions were applied: every command verifies that."""
    return _HOLDINGS[role]() | _on("SELECT", ["applied_revisions"]) | {_USE_SCHEMA}


def missing(wanted: AbstractSet[Privilege], held: AbstractSet[Privilege]) -> frozenset[Privilege]:
    """Give what is wanted and not held. Holding a privilege on a whole relation is holding it on each column."""
    return frozenset(privilege for privilege in wanted if not _covered(privilege, held))


def excess(wanted: AbstractSet[Privilege], held: AbstractSet[Privilege]) -> frozenset[Privilege]:
    """Give what is held and not wanted."""
    return missing(held, wanted)


def _covered(privilege: Privilege, by: AbstractSet[Privilege]) -> bool:
    return privilege in by or evolve(privilege, column="") in by


def _runtime() -> frozenset[Privilege]:
    updated = {
        Privilege("relation", table.name, column, "UPDATE") for table in _TABLES for column in changeable_columns(table)
    }
    return _evidence_reader() | _on("INSERT", _names(_TABLES) - _WRITTEN_BY_OTHERS) | updated


def _operator() -> frozenset[Privilege]:
    return _runtime() | _on("INSERT", ["run_quarantine_releases"])


def _reader() -> frozenset[Privilege]:
    """Overviews, which run with their owner's rights."""
    return _on("SELECT", _views("security_barrier"))


def _evidence_reader() -> frozenset[Privilege]:
    """Decoders too, and the tables, for a decoder runs with its reader's rights."""
    return _reader() | _on("SELECT", _views("security_invoker") | _names(_TABLES))


def _retention() -> frozenset[Privilege]:
    removed = _names(filter(_belongs_to_a_run, _TABLES)) | {"scheduler_fairness_reservations"}
    locked = {Privilege("relation", table, column, "UPDATE") for table, column in _LOCKED_BY_RETENTION}
    return _on("SELECT", removed) | _on("DELETE", removed) | _on("INSERT", ["retention_receipts"]) | locked


_HOLDINGS: Final = {
    Role.RUNTIME: _runtime,
    Role.OPERATOR: _operator,
    Role.READER: _reader,
    Role.EVIDENCE_READER: _evidence_reader,
    Role.RETENTION: _retention,
}


def _on(action: str, relations: Iterable[str]) -> frozenset[Privilege]:
    return frozenset(Privilege("relation", name, "", action) for name in relations)


def _names(tables: Iterable[Table]) -> frozenset[str]:
    return frozenset(table.name for table in tables)


def _belongs_to_a_run(table: Table) -> bool:
    """A slot of a tenant names a run that may be long gone, and so its column may be null."""
    return "run_id" in table.columns and not table.columns["run_id"].nullable


def _views(option: str) -> frozenset[str]:
    """Give the views that were released with an option: such an entry is the kind, then the options."""
    relations = released_catalogue(SCHEMA_TOKEN)["relation"]
    return frozenset(name for name, entry in relations.items() if entry == f"v {option}=true")
