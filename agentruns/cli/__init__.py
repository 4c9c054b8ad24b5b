"""The command line: one module per group of commands, imported when it is used."""

from __future__ import annotations

import importlib
from typing import Final

import click

from agentruns.cli.root import RootGroup

#: Where each command is, and what it says of itself; the help is shown without importing any of them.
COMMANDS: Final = {
    "audit": ("agentruns.cli.audit", "Hold what is stored of runs against every law that it can show."),
    "db": ("agentruns.cli.db", "Migrate the schema, and verify it."),
    "demo": ("agentruns.cli.demo", "Show one run from end to end, a lost answer and a killed worker included."),
    "grants": ("agentruns.cli.grants", "Grant each role what it needs, and audit that."),
    "graphs": ("agentruns.cli.graphs", "List graphs, draw them, and check that an application has what runs need."),
    "quarantine": ("agentruns.cli.quarantine", "List runs that are isolated, and let them go on."),
    "retention": ("agentruns.cli.retention", "Remove runs that nobody needs any more, whole and with a receipt."),
    "runs": ("agentruns.cli.runs", "List runs, show them, say why they do not progress, and ask for their end."),
    "server": ("agentruns.cli.server", "Start and stop the embedded PostgreSQL."),
    "tenants": ("agentruns.cli.tenants", "Count what tenants have, and limit how much of it may run at once."),
    "version": ("agentruns.cli.version", "Show the versions of package, schema and supported servers."),
    "waits": ("agentruns.cli.waits", "List what runs wait for, and answer it."),
    "worker": ("agentruns.cli.worker", "Drive runs until told to stop."),
}


class _Commands(RootGroup):
    """Import a command's module only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as the base class calls it
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - see above
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


main: Final = _Commands(
    name="agentruns",
    help="Durable agent runs on PostgreSQL. Without a database URL the embedded PostgreSQL is used.",
    no_args_is_help=True,
)

__all__ = ["main"]
