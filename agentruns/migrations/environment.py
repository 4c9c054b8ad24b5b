"""Run the chain without a project of Alembic's: our scripts, our version table, no ini file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TextIO

from alembic.config import Config
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext, RevisionStep
from alembic.script import ScriptDirectory
from alembic.util import CommandError, coerce_resource_to_filename
from sqlalchemy import Connection

from agentruns.errors import InvalidOptionError

#: Where the revisions are, in the notation of ``version_locations``.
LOCATION: Final = "agentruns.migrations.versions:"
#: The label of our branch.
BRANCH: Final = "agentruns"

Plan = Callable[[Any, MigrationContext], list[RevisionStep]]


@cache
def scripts() -> ScriptDirectory:
    """Read the revisions that are installed."""
    config = Config()
    config.set_main_option("script_location", "agentruns.migrations:")
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", LOCATION)
    return ScriptDirectory.from_config(config)


def revision_id(target: str) -> str:
    """Read a target: ``head``, ``base``, a revision's id, or its number alone."""
    return f"{BRANCH}_{int(target):04d}" if target.isdecimal() else target


def upgrade_to(target: str) -> Plan:
    """Plan the steps up to a revision."""
    return lambda current, _: scripts()._upgrade_revs(revision_id(target), current)  # noqa: SLF001 - as its commands do


def downgrade_to(target: str) -> Plan:
    """Plan the steps down to a revision."""
    return lambda current, _: scripts()._downgrade_revs(revision_id(target), current)  # noqa: SLF001 - see above


def configured(connection: Connection, plan: Plan, *, schema: str, **options: object) -> MigrationContext:
    """Prepare to migrate over a connection."""
    return MigrationContext.configure(connection, opts={**_options(plan, schema), **options})


def written(plan: Plan, buffer: TextIO, *, schema: str, start: str) -> MigrationContext:
    """Prepare to write a script for ``psql``."""
    offline = {"as_sql": True, "output_buffer": buffer, "starting_rev": revision_id(start)}
    return MigrationContext.configure(
        dialect_name="postgresql",
        dialect_opts={"paramstyle": "named"},
        opts={**_options(plan, schema), **offline},
    )


def run(context: MigrationContext) -> None:
    """Run the steps that the context has planned."""
    with Operations.context(context):
        context.run_migrations()


def _options(plan: Plan, schema: str) -> dict[str, object]:
    return {"fn": plan, "script": scripts(), "version_table_schema": schema, "agentruns_schema": schema}


def check(config: Config | None = None) -> None:
    """Refuse a configuration of Alembic's that does not find our revisions, which Alembic itself skips in silence.

    Raises:
        InvalidOptionError: a version location is no folder, or our branch is in none of them.
    """
    directory = scripts() if config is None else ScriptDirectory.from_config(config)
    locations = [str(location) for location in directory.version_locations or []]
    for location in locations:
        if not _is_folder(location):
            raise _unresolved(location)
    try:
        directory.get_revision(f"{BRANCH}@head")
    except (CommandError, KeyError) as error:  # the latter when a host's revision depends on one of ours
        raise _unresolved(", ".join(locations)) from error


def _is_folder(location: str) -> bool:
    try:
        return Path(coerce_resource_to_filename(location)).is_dir()
    except ImportError:
        return False


def _unresolved(location: str) -> InvalidOptionError:
    bound = f"folders that exist, {LOCATION} among them, with path_separator = newline"
    return InvalidOptionError(option="version_locations", reason="unresolved", value=location, bound=bound)
