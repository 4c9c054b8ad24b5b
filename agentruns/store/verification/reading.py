"""Read definitions as the server prints them under settings that are always the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, text

#: Everything that decides how the server prints the names, instants and intervals of our definitions.
_SETTINGS: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "quote_all_identifiers": "off",
    "search_path": "",
}
_SET: Final = text("SELECT " + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _SETTINGS.items()))

_OWN: Final = ("BEGIN READ ONLY", "ROLLBACK")
#: Rolling back to the savepoint gives the caller the former settings back, and lets go of the locks of the views.
_CALLERS: Final = (
    "SAVEPOINT agentruns_catalogue",
    "ROLLBACK TO SAVEPOINT agentruns_catalogue",
    "RELEASE SAVEPOINT agentruns_catalogue",
)


@contextmanager
def printing_settings(connection: Connection) -> Iterator[None]:
    """Hold the settings for the statements inside, in a transaction of our own or inside the caller's; then undo them.

    A connection in autocommit is given a transaction; else the one that it is in, or begins, goes on afterwards.
    """
    begin, *end = _OWN if _is_in_autocommit(connection) else _CALLERS
    connection.exec_driver_sql(begin)
    try:
        connection.execute(_SET)
        yield
    finally:
        if not connection.invalidated:
            for statement in end:
                connection.exec_driver_sql(statement)


def _is_in_autocommit(connection: Connection) -> bool:
    driver_connection = connection.connection.dbapi_connection
    return driver_connection is not None and connection.dialect.detect_autocommit_setting(driver_connection)
