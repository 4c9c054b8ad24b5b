"""The options that every command takes, before or after its name."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Any, Final

import click
from attrs import frozen

from agentruns.errors import InvalidOptionError
from agentruns.store.options import check_schema_name

DATABASE_URL_VARIABLE: Final = "AGENTRUNS_DATABASE_URL"
#: Whether timeouts are told when a connection starts, or are the role's: ``startup`` or ``role``.
CONNECTION_SETTINGS_VARIABLE: Final = "AGENTRUNS_CONNECTION_SETTINGS"
_KEY: Final = "agentruns.cli."
_LONGEST_TIMEOUT: Final = 86400.0


class Format(Enum):
    """Say how data are written to standard output."""

    TABLE = "table"
    JSON = "json"


@frozen(kw_only=True)
class Settings:
    """Hold the options that every command takes.

    Attributes:
        database_url_file: a file whose only line is the database's URL, before the environment's.
        schema: the database schema.
        output_format: a table for people, JSON for programs.
        is_quiet: leave out progress and messages.
        has_color: whether a terminal shows colours.
        timeout: seconds to wait for a connection, and for the answer of a reading statement.
    """

    database_url_file: Path | None = None
    schema: str = "agentruns"
    output_format: Format = Format.TABLE
    is_quiet: bool = False
    has_color: bool = True
    timeout: float = 15.0

    def __attrs_post_init__(self) -> None:
        check_schema_name(self.schema)
        if not 0.0 < self.timeout <= _LONGEST_TIMEOUT:
            bound = f"above 0, at most {_LONGEST_TIMEOUT:g}"
            raise InvalidOptionError(option="timeout", value=str(self.timeout), bound=bound)


def settings_of(context: click.Context) -> Settings:
    """Collect what was given on the command line, wherever it stood.

    Raises:
        InvalidOptionError: the schema's name is not one.
    """
    given: dict[str, Any] = {
        key.removeprefix(_KEY): value for key, value in context.meta.items() if key.startswith(_KEY)
    }
    return Settings(**given)


def output_format_of(context: click.Context) -> Format:
    """Read the format alone, for errors that come before everything else is known."""
    chosen: Format = context.meta.get(f"{_KEY}output_format", Format.TABLE)
    return chosen


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """Keep a value that was given; the one nearest to the end of the line wins."""
    if value is None or parameter.name is None:
        return
    if parameter.name == "no_color":
        context.meta[f"{_KEY}has_color"] = not value
    else:
        context.meta[f"{_KEY}{parameter.name}"] = Format(value) if parameter.name == "output_format" else value


def _option(*names: str, hidden: bool, **attributes: Any) -> click.Option:
    return click.Option(
        names, default=None, expose_value=False, is_eager=True, callback=_remember, hidden=hidden, **attributes
    )


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """Make the options anew for one command; only the root's help shows them."""
    url_file = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
    return [
        _option(
            "--database-url-file",
            hidden=hidden,
            type=url_file,
            help=f"File with the database's URL; else {DATABASE_URL_VARIABLE}, else the embedded PostgreSQL.",
        ),
        _option("--schema", hidden=hidden, help="Database schema; agentruns by default."),
        _option(
            "--format", "output_format", hidden=hidden, type=click.Choice(["table", "json"]), help="Form of the data."
        ),
        _option("--quiet", "is_quiet", hidden=hidden, is_flag=True, help="Leave out progress and messages."),
        _option("--no-color", "no_color", hidden=hidden, is_flag=True, help="Use no colours."),
        _option(
            "--timeout",
            hidden=hidden,
            type=click.FloatRange(0.0, _LONGEST_TIMEOUT, min_open=True),
            help="Seconds to wait for the database; 15 by default.",
        ),
    ]


def database_url_text(settings: Settings) -> str | None:
    """Read the database's URL as it was given; ``None`` when nobody gave one."""
    if settings.database_url_file is not None:
        return settings.database_url_file.read_text(encoding="utf-8").strip()
    return os.environ.get(DATABASE_URL_VARIABLE) or None


def connection_settings() -> Any:
    """Read where timeouts and durability of connections come from; the store's options refuse another word."""
    return os.environ.get(CONNECTION_SETTINGS_VARIABLE) or "startup"
