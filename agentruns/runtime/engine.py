"""Make the engine of a store: autocommit, settings in the start packet, nothing private in an error."""

from __future__ import annotations

import ipaddress
import re
import ssl
from typing import Any, Final

from attrs import evolve
from sqlalchemy import URL, Engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from agentruns.errors import InvalidOptionError
from agentruns.store.options import StoreOptions
from agentruns.store.transient import invalidate_on_failover, transient

_DRIVER: Final = "postgresql+asyncpg"
_LAST_PORT: Final = 65_535
#: What may follow the question mark: where the server is, and how the driver keeps prepared statements.
_PARAMETERS: Final = frozenset(
    {"host", "port", "timeout", "target_session_attrs", "prepared_statement_cache_size", "statement_cache_size"}
)
_NUMBERS: Final = frozenset({"timeout", "prepared_statement_cache_size", "statement_cache_size"})
_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,9}")
#: Texts do not depend on the number of items, so one general plan of each is kept: planning costs more than running.
#: A kept plan outlives the size that a table had when it was made, so it goes through indexes.
_PLANS: Final = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
_SPELLINGS: Final = ("postgres", "postgresql", _DRIVER)


def create_engine(url: str | URL, options: StoreOptions) -> AsyncEngine:
    """Make an engine that is ours alone.

    It is in autocommit: a statement is a transaction and its answer the acknowledgement. On the path of a run neither
    ``BEGIN`` nor ``COMMIT`` nor ``SET`` is ever sent. Verification, when a store is opened, reads in a transaction, and
    a decision of the control plane that its run has overtaken is made again in one.
    """
    target = database_url(url)
    engine = create_async_engine(
        target,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        pool_size=options.pool_size,
        max_overflow=0,
        pool_timeout=options.pool_timeout.total_seconds(),
        pool_recycle=options.pool_lifetime.total_seconds(),
        pool_use_lifo=True,
        connect_args=_connect_arguments(target, options),
    )
    install_failover_handler(engine)
    return engine


def install_failover_handler(engine: Engine | AsyncEngine) -> None:
    """Let an engine drop its connections when their server was demoted or goes away.

    A read-only server passes every ping, and its pooled connections would answer 25006 for ever. Our own engines have
    it; install it on yours, once, after it is made.
    """
    synchronous = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    event.listen(synchronous, "handle_error", invalidate_on_failover)


def is_transient(error: BaseException) -> bool:
    """Tell whether a database's error passes by itself: repeat the whole transaction, with the same keys and ids.

    It goes by type and SQLSTATE: a lost connection, a serialization failure, a deadlock, a lock or statement timeout.
    """
    return transient(error) is not None


def database_url(url: str | URL) -> URL:
    """Read a PostgreSQL URL in any of its usual spellings, for the asyncpg driver."""
    target = make_url(url)
    if target.drivername not in _SPELLINGS:
        bound = "postgresql://… or postgresql+asyncpg://…"
        raise InvalidOptionError(option="database_url", value=target.drivername, bound=bound)
    if target.port is not None and not 1 <= target.port <= _LAST_PORT:
        raise InvalidOptionError(option="database_url", value=f"port {target.port}", bound=f"a port of 1..{_LAST_PORT}")
    if foreign := sorted(target.query.keys() - _PARAMETERS):
        bound = f"parameters among {', '.join(sorted(_PARAMETERS))}; encryption is an option of the store"
        raise InvalidOptionError(option="database_url", value=ascii(foreign[0][:64]), bound=bound)
    return target.set(drivername=_DRIVER)


def check_url(option: str, url: str | URL) -> None:
    """Refuse a URL that no connection can be made to; nothing of it is repeated, as it may hold a password anywhere.

    Raises:
        InvalidOptionError: under the option's name.
    """
    refused = InvalidOptionError(
        option=option, reason="not_readable", value="not shown", bound="postgresql://user@host:port/database"
    )
    try:
        _numbers(database_url(url))
    except InvalidOptionError as error:
        refused = evolve(error, option=option)
    except (ArgumentError, ValueError):
        pass
    else:
        return
    raise refused


def _connect_arguments(url: URL, options: StoreOptions) -> dict[str, Any]:
    arguments: dict[str, Any] = {"ssl": _tls(url, options), **_numbers(url)}
    if options.settings == "startup":
        arguments["server_settings"] = start_settings(options)
    return arguments


def _numbers(url: URL) -> dict[str, int]:
    """Read the parameters that the driver takes as numbers only; the dialect would leave them text."""
    numbers: dict[str, int] = {}
    for name in _NUMBERS & url.query.keys():
        value = url.query[name]
        if not isinstance(value, str) or not _WHOLE_NUMBER.fullmatch(value):
            raise InvalidOptionError(option="database_url", value=name, bound="a whole number, given once")
        numbers[name] = int(value)
    return numbers


def start_settings(options: StoreOptions) -> dict[str, str]:
    """Give the settings that hold for every statement of a connection."""
    statement_timeout = _milliseconds(options.statement_timeout.total_seconds())
    return {
        "application_name": "agentruns",
        "lock_timeout": _milliseconds(options.lock_timeout.total_seconds()),
        "statement_timeout": statement_timeout,
        "idle_in_transaction_session_timeout": statement_timeout,
        "synchronous_commit": "on",
        "default_transaction_isolation": "read committed",
        **_PLANS,
    }


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


def _tls(url: URL, options: StoreOptions) -> ssl.SSLContext | bool:
    """Verify the server of a network host unless the options say otherwise; a weaker word in the URL does not."""
    if options.tls == "disable" or _is_local(url):
        return False
    context = ssl.create_default_context()
    if options.tls == "require":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_local(url: URL) -> bool:
    host = url.host or url.query.get("host") or ""
    if not isinstance(host, str) or host in ("", "localhost") or host.startswith("/"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
