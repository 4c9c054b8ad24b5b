"""``agentruns version``."""

from __future__ import annotations

from importlib.metadata import version as package_version

import click

from agentruns.cli.options import settings_of
from agentruns.cli.output import Output
from agentruns.cli.root import Command


@click.command(cls=Command)
@click.pass_context
def version(context: click.Context) -> None:
    """Show the versions of package, schema and supported servers."""
    from agentruns.store.released import released_revisions  # noqa: PLC0415 - the help needs no SQLAlchemy

    Output(settings_of(context)).document(
        {
            "package": package_version("agentruns"),
            "schema_revision": released_revisions()[-1].revision,
            "supported_servers": ["16", "17", "18"],
        }
    )
