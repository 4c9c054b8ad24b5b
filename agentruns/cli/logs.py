"""Show a command's warnings on standard error, with the fields that the library's constant messages leave out."""

from __future__ import annotations

import logging
import sys
from typing import Final

#: What every record has; all else was given by whoever logged it.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FieldsFormatter(logging.Formatter):
    """Write level, logger and message, and then each field as ``name=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line of a record, and its traceback where there is one."""
        fields = [f"{name}={value}" for name, value in sorted(vars(record).items()) if name not in _STANDARD]
        line = f"{record.levelname} {record.name}: {record.getMessage()}"
        shown = f"{line} ({', '.join(fields)})" if fields else line
        return f"{shown}\n{self.formatException(record.exc_info)}" if record.exc_info else shown


class StandardErrorHandler(logging.Handler):
    """Write to what standard error is at that moment: a table that changes in place takes its place for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's line."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001 - as every handler of the standard library
            self.handleError(record)


def show_warnings() -> None:
    """Let the process's standard error show what the library warns of."""
    handler = StandardErrorHandler()
    handler.setFormatter(FieldsFormatter())
    handler.setLevel(logging.WARNING)
    logging.getLogger("agentruns").addHandler(handler)
