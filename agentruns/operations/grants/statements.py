"""Write the statements that take privileges, grant them, and set how a role's connections behave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from attrs import frozen
from sqlalchemy import make_url

from agentruns.migrations.locking import lock_key
from agentruns.store.privileges import Privilege

#: What holds through any pooler, which may drop what a connection asks for at its start.
SETTINGS: Final = {
    "lock_timeout": "5s",
    "statement_timeout": "15s",
    "idle_in_transaction_session_timeout": "15s",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "search_path": "",
}

#: Of a dialect that doubles no percent sign: the statements are to be read as well as run.
_quoted: Final = make_url("postgresql+asyncpg://").get_dialect()().identifier_preparer.quote_identifier


@frozen(kw_only=True)
class Target:
    """Say what is granted on.

    Attributes:
        schema: the schema.
        owner: the migrator, whose future objects are meant by default privileges.
        database: the database for which settings hold.
    """

    schema: str
    owner: str
    database: str


def revoke(target: Target, roles: Iterable[str]) -> list[str]:
    """Take everything from the roles and from everybody, one at a time with other migrations and grants.

    What a role had passed on goes with it.
    """
    schema = _quoted(target.schema)
    losers = ", ".join(["PUBLIC", *map(_quoted, roles)])
    future = f"ALTER DEFAULT PRIVILEGES FOR ROLE {_quoted(target.owner)} IN SCHEMA {schema}"
    return [
        f"SELECT pg_advisory_xact_lock({lock_key(target.schema)})",
        f"REVOKE ALL ON SCHEMA {schema} FROM {losers} CASCADE",
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {losers} CASCADE",
        f"REVOKE ALL ON ALL ROUTINES IN SCHEMA {schema} FROM {losers} CASCADE",
        f"{future} REVOKE ALL ON TABLES FROM {losers} CASCADE",
        f"{future} REVOKE ALL ON ROUTINES FROM {losers} CASCADE",
    ]


def grant(target: Target, role: str, privileges: Iterable[Privilege]) -> Iterator[str]:
    """Grant a role its privileges, those that can share a statement in one."""
    for (kind, action, table), group in groupby(sorted(privileges, key=_sharing), key=_sharing):
        if kind == "schema":
            granted = f"{action} ON SCHEMA {_quoted(target.schema)}"
        elif table:
            columns = ", ".join(_quoted(privilege.column) for privilege in sorted(group))
            granted = f"{action} ({columns}) ON TABLE {_located(target, table)}"
        else:
            tables = ", ".join(_located(target, privilege.name) for privilege in sorted(group))
            granted = f"{action} ON TABLE {tables}"
        yield f"GRANT {granted} TO {_quoted(role)}"


def settings(target: Target, roles: Iterable[str]) -> Iterator[str]:
    """Set how the connections of each role to the database behave."""
    for role in roles:
        for name, value in SETTINGS.items():
            yield f"ALTER ROLE {_quoted(role)} IN DATABASE {_quoted(target.database)} SET {name} = '{value}'"


def _sharing(privilege: Privilege) -> tuple[str, str, str]:
    """Group by kind and action; privileges on columns share a statement within one table."""
    return privilege.kind, privilege.action, privilege.name if privilege.column else ""


def _located(target: Target, name: str) -> str:
    return f"{_quoted(target.schema)}.{_quoted(name)}"
