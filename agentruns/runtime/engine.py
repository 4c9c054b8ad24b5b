"""Make the engine of a store: autocommit, settings in the start packet, nothing private in an error."""

from __future__ import annotations

import ipaddress
import ssl
from typing import Any, Final

from sqlalchemy import URL, event, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from agentruns.errors import InvalidOptionError
from agentruns.store.options import StoreOptions
from agentruns.store.transient import invalidate_on_failover

_DRIVER: Final = "postgresql+asyncpg"
_LAST_PORT: Final = 65_535
#: What may follow the question mark: where the server is, and how the driver keeps prepared statements.
_PARAMETERS: Final = frozenset(
    {"host", "port", "timeout", "target_session_attrs", "prepared_statement_cache_size", "statement_cache_size"}
)
#: Texts do not depend on the number of items, so one general plan of each is kept: planning costs more than running.
#: A kept plan outlives the size that a table had when it was made, so it goes through indexes.
_PLANS: Final = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
_SPELLINGS: Final = ("postgres", "postgresql", _DRIVER)


def create_engine(url: str | URL, options: StoreOptions) -> AsyncEngine:
    """Make an engine that is ours alone.

    It is in autocommit: a statement is a transaction and its answer the acknowledgement, and neither ``BEGIN`` nor
    ``COMMIT`` nor ``SET`` is ever sent.
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
    event.listen(engine.sync_engine, "handle_error", invalidate_on_failover)
    return engine


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


def _connect_arguments(url: URL, options: StoreOptions) -> dict[str, Any]:
    arguments: dict[str, Any] = {"ssl": _tls(url, options)}
    if options.settings == "startup":
        arguments["server_settings"] = start_settings(options)
    return arguments


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
