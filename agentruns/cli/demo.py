"""``agentruns demo``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from agentruns.cli.failures import FINDINGS
from agentruns.cli.options import database_url_text, settings_of
from agentruns.cli.output import Output
from agentruns.cli.root import Command


@click.command(cls=Command)
@click.option(
    "--input",
    "path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A text file to work on; by default one that comes with the package.",
)
@click.pass_context
def demo(context: click.Context, path: Path | None) -> None:
    """Run a document-triage agent from end to end, with an answer that is lost and a worker that is killed.

    Without a database URL the embedded PostgreSQL is started and migrated.
    """
    from agentruns import migrations  # noqa: PLC0415 - the help needs none of this
    from agentruns.cli import connection  # noqa: PLC0415 - see above
    from agentruns.cli.demo_input import read_text  # noqa: PLC0415 - see above
    from agentruns.cli.demo_story import play  # noqa: PLC0415 - see above

    settings = settings_of(context)
    output = Output(settings)
    text = read_text(path)
    with connection.database(settings, output) as url:
        if database_url_text(settings) is None:
            connection.migrate(settings, output, lambda fresh: migrations.upgrade(fresh, schema=settings.schema))
        report = asyncio.run(play(url, text, schema=settings.schema, output=output))
    report.write_to(output)
    context.exit(0 if report.is_verified else FINDINGS)
