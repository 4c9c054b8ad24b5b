"""A real PgBouncer in transaction pooling before the test's database, where it is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, make_url

from agentruns.operations import grants
from agentruns.testing.pgbouncer import PgBouncer

#: Fewer backends than a store has connections, so that a connection meets another one each time.
BACKENDS = 2


@pytest.fixture
def bare_pooled_url(
    database_url: str, owner_url: str, within: Callable[[str, Callable[[Connection], Any]], Any]
) -> Iterator[str]:
    """The database behind a pooler, for a role whose settings are its own, as one would name any database."""
    if shutil.which("pgbouncer") is None:
        pytest.skip("there is no pgbouncer on the path")
    target = make_url(database_url)
    role = str(target.username)
    within(owner_url, lambda connection: grants.apply(connection, grants.GrantedRoles(runtime=role)))
    with PgBouncer.before(target, users=[role], backends=BACKENDS) as pooler:
        yield pooler.url(target).render_as_string(hide_password=False)


@pytest.fixture
def pooled_url(bare_pooled_url: str) -> str:
    """The same, with the parameter that such a pooler needs."""
    return make_url(bare_pooled_url).update_query_dict({"statement_cache_size": "0"}).render_as_string(False)  # noqa: FBT003 - whether to hide the password
