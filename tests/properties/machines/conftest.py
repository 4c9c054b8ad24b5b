"""A database for the machines, one for each test."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from agentruns.testing.machines.stored import StoredWorld, open_stored

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture
def stored_world(database_url: str, owner_url: str, run: Run) -> Iterator[StoredWorld]:
    """A store on a real server, whose clock runs."""
    opening = open_stored(owner_url, store_url=database_url)
    store, engine = run(opening.__aenter__())
    yield StoredWorld(run, store, engine)
    run(opening.__aexit__(None, None, None))


@pytest.fixture
def frozen_world(database_url: str, owner_url: str, run: Run) -> Iterator[StoredWorld]:
    """A store on a real server, whose clock stands still until a machine moves it."""
    opening = open_stored(owner_url, store_url=database_url, has_frozen_clock=True)
    store, engine = run(opening.__aenter__())
    yield StoredWorld(run, store, engine)
    run(opening.__aexit__(None, None, None))
