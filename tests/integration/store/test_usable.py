"""A store works between its entering, which verifies the schema, and its leaving, which returns all connections."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import text

from agentruns.errors import UnitOfWorkError
from agentruns.runtime.store import AgentRunStore

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_a_store_that_is_not_entered_or_closed_answers_nothing(database_url: str, run: Run) -> None:
    async def work() -> None:
        store = AgentRunStore(database_url)

        async def ask() -> int:
            return await store.run(lambda unit: int(unit.execute(text("SELECT 1")).scalar_one()))

        with pytest.raises(UnitOfWorkError) as early:
            await ask()
        async with store:
            assert await ask() == 1
        with pytest.raises(UnitOfWorkError) as late:
            await ask()
        assert (early.value.reason, late.value.reason) == ("not_entered", "closed")
        assert store._engine.pool.status().startswith("Pool size: 16  Connections in pool: 0")

    run(work())
