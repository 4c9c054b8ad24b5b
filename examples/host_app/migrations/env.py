"""Run our revisions and those of the runs, which are a branch of their own, in one transaction."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from alembic import context
from order_reviews.database import make_engine
from order_reviews.models import Base
from sqlalchemy import Connection

from agentruns import migrations

OPTIONS: dict[str, Any] = {
    "target_metadata": Base.metadata,
    "include_schemas": True,
    "include_name": migrations.include_name,
    "agentruns_schema": "agentruns",
}


def migrate() -> None:
    """Run what the command asked for, when no other process does."""
    with context.begin_transaction():
        migrations.wait_turn(context)
        context.run_migrations()


def migrate_over(connection: Connection) -> None:
    """Run over a connection."""
    context.configure(connection=connection, **OPTIONS)
    migrate()


async def migrate_online() -> None:
    """Open the one connection that is needed, and run over it."""
    engine = make_engine(os.environ["ORDER_REVIEWS_DATABASE_URL"])
    async with engine.connect() as connection:
        await connection.run_sync(migrate_over)
    await engine.dispose()


migrations.check(context.config)
if context.is_offline_mode():
    context.configure(dialect_name="postgresql", dialect_opts={"paramstyle": "named"}, **OPTIONS)
    migrate()
else:
    asyncio.run(migrate_online())
