"""``agentruns db``: the schema, and its state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click
from sqlalchemy import Connection, Row, select

from agentruns import migrations
from agentruns.cli import connection
from agentruns.cli.options import Settings, settings_of
from agentruns.cli.output import Output
from agentruns.cli.root import Group
from agentruns.errors import InvalidOptionError, SchemaVerificationError
from agentruns.migrations import manifest as manifests
from agentruns.operations.verification import SchemaReport, verify_schema
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.orm.runs import AppliedRevisionRow
from agentruns.store.released import released_revisions
from agentruns.store.verification import verify_server
from agentruns.store.verification.catalogue import read_catalogue
from agentruns.store.verification.role import PrivilegeMode, VerifiedRole

HEAD = released_revisions()[-1].number
_Applied = Sequence[Row[tuple[object, ...]]]
_COLUMNS = ("number", "revision", "applied_at", "applied_by", "package_version")


@click.group(cls=Group)
def db() -> None:
    """Migrate the schema, and verify it."""


@db.command()
@click.option("--to", type=click.IntRange(1, HEAD), help=f"Number of the revision; {HEAD}, the newest, by default.")
@click.option(
    "--lock-wait",
    type=click.IntRange(0, 86400),
    default=300,
    show_default=True,
    help="Seconds to wait for another process that migrates.",
)
@click.pass_context
def upgrade(context: click.Context, to: int | None, lock_wait: int) -> None:
    """Bring the schema up to a revision; nothing happens if it is there."""
    settings = settings_of(context)
    output = Output(settings)
    target = "head" if to is None else str(to)
    output.say(f"Migrating schema {settings.schema} to {target}")

    def work(migrating: Connection) -> _Applied:
        migrations.upgrade(migrating, schema=settings.schema, to=target, lock_wait=timedelta(seconds=lock_wait))
        return _applied(migrating, settings.schema)

    _show_newest(settings, output, connection.migrate(settings, output, work))


@db.command()
@click.option("--to", type=click.IntRange(0, HEAD), required=True, help="Number of the revision; 0 removes all.")
@click.option("--destroy-evidence", metavar="SCHEMA", help="The schema's name, to drop tables that hold rows too.")
@click.pass_context
def downgrade(context: click.Context, to: int, destroy_evidence: str | None) -> None:
    """Take the schema down to a revision, while what it drops is empty."""
    settings = settings_of(context)
    output = Output(settings)

    def work(migrating: Connection) -> _Applied:
        target = str(to) if to else "base"
        migrations.downgrade(migrating, to=target, schema=settings.schema, destroy_evidence=destroy_evidence)
        return _applied(migrating, settings.schema) if to else ()

    _show_newest(settings, output, connection.migrate(settings, output, work))


@db.command()
@click.option("--from", "from_", type=click.IntRange(0, HEAD), default=0, help="Number of the revision that is there.")
@click.option("--to", type=click.IntRange(1, HEAD), default=HEAD, help="Number of the revision to reach.")
@click.pass_context
def sql(context: click.Context, from_: int, to: int) -> None:
    """Write the script that `psql -v ON_ERROR_STOP=1 -f` replays."""
    settings = settings_of(context)
    start = str(from_) if from_ else "base"
    Output(settings).text(migrations.sql(start, str(to), schema=settings.schema))


@db.command()
@click.pass_context
def current(context: click.Context) -> None:
    """Show the newest revision that has been applied."""
    settings = settings_of(context)
    output = Output(settings)
    rows = connection.read(settings, output, lambda reading: _applied(reading, settings.schema))
    _show_newest(settings, output, rows)


@db.command()
@click.pass_context
def history(context: click.Context) -> None:
    """List the revisions that have been applied."""
    settings = settings_of(context)
    output = Output(settings)
    rows = connection.read(settings, output, lambda reading: _applied(reading, settings.schema))
    output.lines([row._asdict() for row in rows], columns=_COLUMNS)


@db.command()
@click.option("--strict", is_flag=True, help="Refuse a schema that is newer than this release.")
@click.option(
    "--privileges",
    type=click.Choice(["warn", "require"]),
    default="warn",
    show_default=True,
    help="What to do when the role may do more than it must.",
)
@click.option(
    "--role",
    type=click.Choice(["runtime", "operator"]),
    default="runtime",
    show_default=True,
    help="The job that says what the role must be able to do.",
)
@click.pass_context
def verify(context: click.Context, strict: bool, privileges: PrivilegeMode, role: VerifiedRole) -> None:
    """Verify the server, the revisions, every object of the schema, and what the role may do."""
    settings = settings_of(context)
    output = Output(settings)

    def work(reading: Connection) -> SchemaReport:
        return verify_schema(reading, schema=settings.schema, strict=strict, privileges=privileges, role=role)

    try:
        report = connection.read(settings, output, work)
    except SchemaVerificationError as error:
        if error.findings:
            output.document({"schema": settings.schema, "verified": False, "findings": list(error.findings)})
        raise
    output.document(
        {
            "schema": report.schema,
            "server": report.server_version,
            "revision": report.revisions[-1],
            "revisions": len(report.revisions),
            "newer": list(report.newer),
            "warnings": list(report.warnings),
            "verified": True,
        }
    )


@db.command()
@click.pass_context
def manifest(context: click.Context) -> None:
    """Write the manifest of the installed revisions and of the schema that they have made, as JSON."""
    settings = settings_of(context)
    if settings.schema != manifests.SCHEMA:
        raise InvalidOptionError(option="schema", value=settings.schema, bound=manifests.SCHEMA)
    output = Output(settings)

    def work(reading: Connection) -> str:
        verify_server(reading, settings.schema)
        return manifests.render(read_catalogue(reading, schema=settings.schema))

    output.text(connection.read(settings, output, work))


def _show_newest(settings: Settings, output: Output, rows: _Applied) -> None:
    last = rows[-1]._asdict() if rows else dict.fromkeys(_COLUMNS)
    output.document({"schema": settings.schema, **last, "newest": HEAD})


def _applied(reading: Connection, schema: str) -> _Applied:
    verify_server(reading, schema)
    statement = select(*(getattr(AppliedRevisionRow, name) for name in _COLUMNS)).order_by(AppliedRevisionRow.number)
    options = {"schema_translate_map": {SCHEMA_TOKEN: schema}}
    rows = reading.execute(statement, execution_options=options).all()
    if not rows:
        raise SchemaVerificationError(reason="not_migrated", schema=schema)
    return rows
