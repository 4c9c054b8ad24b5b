"""Groups and commands that take the global options and end with an exit code and one sentence."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from agentruns.cli.failures import INTERRUPTED, report
from agentruns.cli.logs import show_warnings
from agentruns.cli.options import Format, global_options, output_format_of


def _interrupt(*_: object) -> NoReturn:
    """Leave a command that is terminated as one that is interrupted, so that what it started ends with it."""
    raise KeyboardInterrupt


class Command(click.Command):
    """Take the global options as well as one's own."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params = [*self.params, *global_options(hidden=True)]


class Group(click.Group):
    """Take the global options before the command's name as well."""

    command_class = Command

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params = [*self.params, *global_options(hidden=not isinstance(self, RootGroup))]


class RootGroup(Group):
    """Turn every end of a command into the exit code that it means; no traceback leaves."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, reporting a failure in the format that was asked for."""
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it was, one sentence
            raise click.exceptions.Exit(report(error, output_format_of(ctx))) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "agentruns",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run one command line and leave the process with its exit code."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        signal.signal(signal.SIGTERM, _interrupt)
        show_warnings()
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            click.echo("Interrupted.", err=True)
            code = INTERRUPTED
        except click.ClickException as error:
            code = report(error, Format.TABLE)
        except BrokenPipeError:
            _leave_quietly()
        sys.exit(code if isinstance(code, int) else 0)


def _leave_quietly() -> NoReturn:
    """End without a word: whoever read our output has gone, and a flush at exit would only complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)
