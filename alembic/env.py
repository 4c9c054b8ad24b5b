"""Run the chain in a checkout: ``alembic upgrade heads`` over AGENTRUNS_DATABASE_URL, or ``--sql`` over nothing."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.orm import Base

SCHEMA = os.environ.get("AGENTRUNS_SCHEMA", "agentruns")
OPTIONS: dict[str, Any] = {
    "target_metadata": Base.metadata,
    "include_schemas": True,
    "version_table_schema": SCHEMA,
    "agentruns_schema": SCHEMA,
}


def run() -> None:
    """Run what the command asked for, alone."""
    with context.begin_transaction():
        migrations.wait_turn(context)
        context.execute(migrations.create_schema(SCHEMA))
        context.run_migrations()


def run_over(connection: Connection) -> None:
    """Run over a connection."""
    context.configure(connection=connection, **OPTIONS)
    run()


async def run_online() -> None:
    """Open a connection and run over it."""
    # A role that is named like the schema has it as its default; a comparison would then call it by no name.
    settings = {"server_settings": {"search_path": "public"}}
    engine = create_async_engine(os.environ["AGENTRUNS_DATABASE_URL"], poolclass=NullPool, connect_args=settings)
    async with engine.connect() as connection:
        await connection.run_sync(run_over)
    await engine.dispose()


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", dialect_opts={"paramstyle": "named"}, **OPTIONS)
    run()
else:
    asyncio.run(run_online())
