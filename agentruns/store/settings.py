"""Check that a connection has the settings on which the store's promises stand."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import Connection, bindparam, text

from agentruns.errors import InvalidOptionError
from agentruns.store.options import StoreOptions

_DURABLE: Final = frozenset({"on", "remote_apply"})
_ISOLATION: Final = "read committed"
_REMEDY: Final = "set it for the role: ALTER ROLE … IN DATABASE … SET {name} = …"

_READ: Final = text("SELECT name, setting FROM pg_catalog.pg_settings WHERE name IN :names").bindparams(
    bindparam("names", expanding=True)
)


def check_settings(connection: Connection, options: StoreOptions) -> None:
    """Read the effective settings and refuse a weaker one: a pooler may have dropped what the start packet said.

    Raises:
        InvalidOptionError: the setting, the value found and what it has to be.
    """
    bounds = _bounds(options)
    names = [*bounds, "synchronous_commit", "default_transaction_isolation"]
    rows = connection.execute(_READ, {"names": names})
    found: dict[str, str] = {row.name: row.setting for row in rows}
    for name, bound in bounds.items():
        milliseconds = int(found[name])
        if not 0 < milliseconds <= bound:
            raise _weaker(name, found[name], f"1..{bound} ms")
    if found["synchronous_commit"] not in _DURABLE:
        raise _weaker("synchronous_commit", found["synchronous_commit"], "on or remote_apply")
    if found["default_transaction_isolation"] != _ISOLATION:
        raise _weaker("default_transaction_isolation", found["default_transaction_isolation"], _ISOLATION)


def _bounds(options: StoreOptions) -> dict[str, int]:
    statement = _milliseconds(options.statement_timeout)
    return {
        "lock_timeout": _milliseconds(options.lock_timeout),
        "statement_timeout": statement,
        "idle_in_transaction_session_timeout": statement,
    }


def _milliseconds(duration: timedelta) -> int:
    return max(1, round(duration.total_seconds() * 1000))


def _weaker(name: str, found: str, wanted: str) -> InvalidOptionError:
    return InvalidOptionError(option=name, value=found, bound=f"{wanted}; {_REMEDY.format(name=name)}")
