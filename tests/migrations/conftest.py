"""A host: an application with an Alembic project of its own, which names our revisions beside its own; and psql."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from sqlalchemy import make_url

from agentruns import migrations
from agentruns.operations.embedded.binaries import find_binaries

Replay = Callable[..., str]

ENV = """
import asyncio
from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool
from agentruns import migrations

option = context.config.get_main_option
metadata = MetaData()
Table("orders", metadata, Column("id", Integer, primary_key=True))
options = dict(target_metadata=metadata, include_schemas=True, include_name=migrations.include_name,
               transaction_per_migration=option("per_revision") == "yes", agentruns_schema="agentruns")

def run(**more):
    context.configure(**options, **more)
    with context.begin_transaction():
        migrations.wait_turn(context)
        context.run_migrations()

async def main():
    settings = {"server_settings": {"search_path": "public"}}
    engine = create_async_engine(option("url"), poolclass=NullPool, connect_args=settings)
    async with engine.connect() as connection:
        await connection.run_sync(lambda synchronous: run(connection=synchronous))
    await engine.dispose()

if context.is_offline_mode():
    run(dialect_name="postgresql", dialect_opts={"paramstyle": "named"})
else:
    asyncio.run(main())
"""
REVISION = """
from alembic import op
import sqlalchemy as sa
revision = "host_0001"
down_revision = None
branch_labels = ("host",)
depends_on = "agentruns_0016"
def upgrade():
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
def downgrade():
    op.drop_table("orders")
"""


@pytest.fixture
def host(tmp_path: Path, empty_database_url: str) -> Config:
    """The host's configuration, which is also in its file; with ``per_revision`` each revision is a transaction."""
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "0001_orders.py").write_text(REVISION)
    (tmp_path / "env.py").write_text(ENV)
    config = Config(tmp_path / "alembic.ini")
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{tmp_path / 'versions'}\n{migrations.LOCATION}")
    config.set_main_option("url", empty_database_url.replace("%", "%%"))
    config.set_main_option("per_revision", "no")
    return config


@pytest.fixture
def replay(server: Any, tmp_path: Path) -> Replay:
    """Replay a script with the program that came with the server, and give what it wrote to standard error."""

    def call(url: str, script: str, *, code: int = 0) -> str:
        path, address = tmp_path / "script.sql", make_url(url)
        path.write_text(script)
        where = ["-h", str(address.query["host"]), "-p", str(address.query["port"]), "-U", str(address.username)]
        psql = [
            str(find_binaries(server.major).command("psql")),
            "-Xq",
            "-v",
            "ON_ERROR_STOP=1",
            "-v",
            "VERBOSITY=sqlstate",
        ]
        arguments = [*psql, *where, "-d", str(address.database), "-f", str(path)]
        # The role is named like our schema, which would be the default of a host's own tables.
        variables = {"PGOPTIONS": "-c search_path=public"}
        done = subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == code, done.stderr
        return done.stderr

    return call
