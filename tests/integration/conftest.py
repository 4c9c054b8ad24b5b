"""What the tests on a real server share."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection

from agentruns.runtime import database as opening
from agentruns.store.verification import verify_schema

#: Who may open a clone as it was made, for which nobody else was granted anything.
_ROLES = frozenset({"agentruns", "agentruns_runtime"})
#: What stores have verified in this process, of any clone.
_VERIFIED = set[tuple[Any, ...]]()


@pytest.fixture(autouse=True)
def clones_are_verified_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first store of a role verify a clone of the template; all others are like that one.

    A folder or a module that opens stores on what it has changed overrides this one.
    """
    if "server" not in request.fixturenames:
        return
    clones = request.getfixturevalue("server").clones

    def once(connection: Connection, **what: Any) -> None:
        url = connection.engine.url
        key = (url.username, *what.values())
        if not (url.database in clones and url.username in _ROLES and key in _VERIFIED):
            verify_schema(connection, **what)
            _VERIFIED.add(key)

    monkeypatch.setattr(opening, "verify_schema", once)
