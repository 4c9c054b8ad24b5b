"""What a command writes: data to standard output, progress and messages to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain
from textwrap import wrap
from typing import Final, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentruns.cli.options import Format, Settings

#: Wide enough for every table: whoever reads a pipe wants each row on its own line.
_PIPE_WIDTH: Final = 4096
#: So wide is what stands in a list of a document, which a person reads even through a pipe.
_READABLE_WIDTH: Final = 100


class Output:
    """Write the data of one command in the format that was asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def is_json(self) -> bool:
        """A program reads."""
        return self._settings.output_format is Format.JSON

    @property
    def is_quiet(self) -> bool:
        """Nobody wants progress or messages."""
        return self._settings.is_quiet

    @property
    def is_watched(self) -> bool:
        """A person sees at once what goes on: standard error is a terminal on which text can be replaced."""
        is_wanted = not (self.is_json or self.is_quiet)
        return is_wanted and sys.stderr.isatty() and not self.progress.is_dumb_terminal

    @cached_property
    def console(self) -> Console:
        """Standard output."""
        return self._console(sys.stdout)

    @cached_property
    def progress(self) -> Console:
        """Standard error."""
        return self._console(sys.stderr)

    def say(self, message: str) -> None:
        """Tell a person what goes on."""
        if not self.is_quiet:
            self.progress.print(Text(message))

    def document(self, members: Mapping[str, object]) -> None:
        """Write one object."""
        if self.is_json:
            self._line(members)
            return
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        room = _READABLE_WIDTH - max(map(len, members), default=0) - 2
        for name, value in members.items():
            table.add_row(name.replace("_", " "), Text(_in_lines(value, room)))
        self.console.print(table)

    def lines(self, rows: Iterable[Mapping[str, object]], *, columns: Sequence[str]) -> None:
        """Write a list: a table of the columns named, or whole rows as JSON lines."""
        if self.is_json:
            for row in rows:
                self._line(row)
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(column.replace("_", " "), overflow="fold")
        for row in rows:
            table.add_row(*(Text(_shown(row[column])) for column in columns))
        self.console.print(table)

    def text(self, text: str) -> None:
        """Write text that is the data itself, as it is."""
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()

    def _line(self, members: Mapping[str, object]) -> None:
        self.text(json.dumps({name: _plain(value) for name, value in members.items()}))

    def _console(self, stream: TextIO) -> Console:
        has_color = self._settings.has_color and "NO_COLOR" not in os.environ
        width = None if stream.isatty() else _PIPE_WIDTH
        return Console(file=stream, no_color=not has_color, highlight=False, soft_wrap=False, width=width)


def _plain(value: object) -> object:
    """Give the JSON form of a value: instants in UTC with microseconds, durations in seconds."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _in_lines(value: object, room: int) -> str:
    """Give each item of a list that is too long for one line a line of its own, and a long item several."""
    if not isinstance(value, list | tuple) or len(_shown(value)) <= room:
        return _shown(value)
    folded = (wrap(_shown(item), room, subsequent_indent="  ", break_long_words=False) for item in value)
    return "\n".join(chain.from_iterable(folded))


def _shown(value: object) -> str:
    """Give the form for people: whole seconds, and a dash for what is not there."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    if isinstance(value, timedelta):
        return str(timedelta(seconds=round(value.total_seconds())))
    return ", ".join(map(_shown, value)) if isinstance(value, list | tuple) else str(value)
