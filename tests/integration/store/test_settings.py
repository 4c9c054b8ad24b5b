"""A store refuses a database whose settings would break its promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.errors import InvalidOptionError, UnitOfWorkError
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(autouse=True)
def clones_are_verified_once() -> None:
    """Not here: each store verifies what it finds."""


async def set_for_database(url: str, setting: str, value: str) -> None:
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.begin() as connection:
        name = make_url(url).database
        await connection.execute(text(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'"))
    await engine.dispose()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lock_timeout", "0"),
        ("lock_timeout", "6s"),
        ("statement_timeout", "0"),
        ("idle_in_transaction_session_timeout", "0"),
        ("synchronous_commit", "off"),
        ("synchronous_commit", "local"),
        ("default_transaction_isolation", "serializable"),
    ],
)
def test_OPS_14_a_weaker_setting_is_refused_at_the_first_connection(
    database_url: str, owner_url: str, run: Run, setting: str, value: str
) -> None:
    async def work() -> None:
        for name, good in (
            ("lock_timeout", "5s"),
            ("statement_timeout", "15s"),
            ("idle_in_transaction_session_timeout", "15s"),
            ("synchronous_commit", "on"),
        ):
            await set_for_database(owner_url, name, good)
        async with AgentRunStore(database_url, StoreOptions(settings="role")):
            pass
        await set_for_database(owner_url, setting, value)
        with pytest.raises(InvalidOptionError) as caught:
            await AgentRunStore(database_url, StoreOptions(settings="role")).open()
        assert caught.value.option == setting
        async with AgentRunStore(database_url):
            pass

    run(work())


def test_an_engine_belongs_to_one_event_loop(database_url: str, run: Run) -> None:
    store = AgentRunStore(database_url)
    run(store.open())

    async def elsewhere() -> str:
        with pytest.raises(UnitOfWorkError) as caught:
            await store.open()
        return caught.value.reason

    with asyncio.Runner() as other:
        assert other.run(elsewhere()) == "wrong_event_loop"
    run(store.close())


def test_OPS_06_prepared_statements_that_are_lost_are_told_of_as_an_option(database_url: str, run: Run) -> None:
    async def work() -> None:
        async with AgentRunStore(database_url, StoreOptions(pool_size=1, notifies=False)) as store:
            for _ in range(2):
                await store.ask_time()
            # What a pooler of transactions does to whoever comes back to another backend.
            await store.read(lambda work: work.execute(text("DEALLOCATE ALL")))
            with pytest.raises(InvalidOptionError) as refused:
                await store.ask_time()
            assert (refused.value.option, refused.value.value) == ("statement_cache_size", "not 0")

    run(work())
