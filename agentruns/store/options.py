"""The options of a store, checked when they are made."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from attrs import field, frozen

from agentruns.errors import InvalidOptionError

if TYPE_CHECKING:
    from sqlalchemy import URL  # the help of a command needs options, and no database

_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_RESERVED_SCHEMAS: Final = frozenset({"public", "information_schema"})


def check_schema_name(name: str) -> str:
    """Refuse a schema name that is reserved or would have to be quoted."""
    if not _SCHEMA_NAME.fullmatch(name) or name in _RESERVED_SCHEMAS or name.startswith("pg_"):
        bound = "[a-z_][a-z0-9_]{0,47}, not public, information_schema or pg_*"
        raise InvalidOptionError(option="schema", value=ascii(name[:64]), bound=bound)
    return name


def check_duration(option: str, value: timedelta, *, low: timedelta, high: timedelta) -> None:
    """Refuse a duration that is no ``timedelta`` or outside ``low..high``, both included."""
    if type(value) is not timedelta or not low <= value <= high:
        raise InvalidOptionError(option=option, value=str(value), bound=f"{low}..{high}")


def check_count(option: str, value: int, *, low: int, high: int) -> None:
    """Refuse a count that is no ``int`` or outside ``low..high``, both included."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidOptionError(option=option, value=str(value), bound=f"{low}..{high}")


def check_flag(option: str, value: bool) -> None:  # noqa: FBT001 - it is the subject
    """Refuse a flag that is no ``bool``."""
    if type(value) is not bool:
        raise InvalidOptionError(option=option, value=ascii(value)[:64], bound="True or False")


_LEAST: Final = timedelta(microseconds=1)
_DAY: Final = timedelta(days=1)


@frozen(kw_only=True)
class StoreOptions:
    """Say how a store uses its database.

    Attributes:
        schema: the database schema that holds the tables.
        lease_duration: how long a claim or a start keeps others away.
        maximum_lease_horizon: how far ahead of the database's clock a renewal may reach.
        lock_timeout: how long a statement waits for a row; below ``statement_timeout``.
        statement_timeout: how long a statement may run, and a transaction may idle.
        pool_size: connections at most; one works.
        pool_timeout: how long a call waits for a connection of the pool.
        pool_lifetime: after how long a connection is replaced.
        lane_connections: statements of one kind under way at once; what waits meanwhile shares the next one.
        attempts: how often a call of our own is tried when the trouble passes.
        initial_delay: pause before the second try; doubled for each further one, jittered, at most a second.
        settings: ``startup`` sends timeouts and durability with the first packet; ``role`` relies on the role's own,
            for poolers that refuse start parameters.
        role: the job whose privileges are looked at when the store is opened; ``operator`` may release quarantines too.
        tls: ``verify-full``, ``require`` or ``disable`` for a network host; sockets and loopback use none.
        notifies: whether listening workers are told of what became ready, and waiting calls of what has ended, in at
            most 20 short statements a second; without it, calls that wait do not listen either.
        listen_url: of a direct connection on which calls that wait for an end listen, never through a pooler of
            transactions; by default the store's.
    """

    schema: str = "agentruns"
    lease_duration: timedelta = timedelta(seconds=30)
    maximum_lease_horizon: timedelta = timedelta(minutes=5)
    lock_timeout: timedelta = timedelta(seconds=5)
    statement_timeout: timedelta = timedelta(seconds=15)
    pool_size: int = 16
    pool_timeout: timedelta = timedelta(seconds=5)
    pool_lifetime: timedelta = timedelta(minutes=30)
    lane_connections: int = 2
    attempts: int = 3
    initial_delay: timedelta = timedelta(milliseconds=25)
    settings: Literal["startup", "role"] = "startup"
    role: Literal["runtime", "operator"] = "runtime"
    tls: Literal["verify-full", "require", "disable"] = "verify-full"
    notifies: bool = True
    listen_url: str | URL | None = field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        check_schema_name(self.schema)
        check_duration("maximum_lease_horizon", self.maximum_lease_horizon, low=_LEAST, high=_DAY)
        check_duration("lease_duration", self.lease_duration, low=_LEAST, high=self.maximum_lease_horizon)
        check_duration("statement_timeout", self.statement_timeout, low=timedelta(milliseconds=2), high=_DAY)
        below = self.statement_timeout - timedelta(milliseconds=1)
        check_duration("lock_timeout", self.lock_timeout, low=timedelta(milliseconds=1), high=below)
        check_duration("pool_timeout", self.pool_timeout, low=_LEAST, high=_DAY)
        check_duration("pool_lifetime", self.pool_lifetime, low=_LEAST, high=_DAY)
        check_duration("initial_delay", self.initial_delay, low=_LEAST, high=timedelta(seconds=1))
        check_count("pool_size", self.pool_size, low=1, high=1024)
        check_count("lane_connections", self.lane_connections, low=1, high=8)
        check_count("attempts", self.attempts, low=1, high=10)
        self._check_words()

    def _check_words(self) -> None:
        if self.settings not in ("startup", "role"):
            raise InvalidOptionError(option="settings", value=ascii(self.settings), bound="startup or role")
        if self.role not in ("runtime", "operator"):
            raise InvalidOptionError(option="role", value=ascii(self.role), bound="runtime or operator")
        if self.tls not in ("verify-full", "require", "disable"):
            raise InvalidOptionError(option="tls", value=ascii(self.tls), bound="verify-full, require or disable")
        check_flag("notifies", self.notifies)
