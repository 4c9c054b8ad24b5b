"""A migrated database whose owner is no superuser, and a role for each job, named for this process alone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from attrs import frozen
from sqlalchemy import Connection, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.operations.grants import GrantedRoles, apply

#: What a name may hold: a quote, a space, a percent sign, a colon with a word, letters that fold, a backslash.
WEIRD = 'we"ird role 100%s :x \\ Ä'
#: The reader of evidence has a role of its own, in a second application.
JOBS = ("runtime", "operator", "reader", "evidence reader", "retention")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@frozen(kw_only=True)
class Granted:
    """A database in which each role was granted what its job needs.

    Attributes:
        url: as a superuser.
        names: the role of each job.
    """

    url: str
    names: dict[str, str]

    @property
    def roles(self) -> GrantedRoles:
        named = self.names
        return GrantedRoles(
            runtime=named["runtime"],
            operator=named["operator"],
            reader=named["reader"],
            retention=named["retention"],
        )

    @property
    def evidence(self) -> GrantedRoles:
        return GrantedRoles(reader=self.names["evidence reader"], evidence=True)

    def url_of(self, job: str) -> str:
        return make_url(self.url).set(username=self.names[job]).render_as_string(hide_password=False)


@pytest.fixture(autouse=True)
def clones_are_verified_once() -> None:
    """Not here: each store verifies what it finds."""


@pytest.fixture(scope="session")
def role_names(server: Any) -> Iterator[dict[str, str]]:
    """Roles of this process that nobody has granted anything."""
    names = {job: f"{WEIRD if job == 'runtime' else job} {os.getpid()}" for job in JOBS}
    for name in names.values():
        server.execute(f"CREATE ROLE {quoted(name)} LOGIN")
    yield names
    for name in names.values():
        server.execute(f"DROP ROLE {quoted(name)}")


def execute(url: str, *works: Callable[[Connection], Any]) -> None:
    async def call() -> None:
        engine = create_async_engine(url, poolclass=NullPool)
        async with engine.begin() as connection:
            for work in works:
                await connection.run_sync(work)
        await engine.dispose()

    asyncio.run(call())


def take_from_the_suite(connection: Connection) -> None:
    """Take what the suite's own runtime holds in every database: it is nobody's whom these tests name."""
    for what in ("ALL TABLES IN SCHEMA agentruns", "SCHEMA agentruns"):
        connection.execute(text(f"REVOKE ALL ON {what} FROM agentruns_runtime"))


@pytest.fixture
def migrated_url(server: Any, role_names: dict[str, str]) -> Iterator[str]:  # noqa: ARG001 - they outlive it
    """A database in which no role was granted anything yet."""
    database = server.clone()
    execute(server.url(database), take_from_the_suite)
    yield server.url(database)
    server.drop(database)


@pytest.fixture(scope="module")
def granted(server: Any, role_names: dict[str, str]) -> Iterator[Granted]:
    """One database for a module: whoever changes it undoes the change."""
    database = server.clone()
    made = Granted(url=server.url(database), names=role_names)
    works = [partial(apply, roles=roles) for roles in (made.roles, made.evidence)]
    execute(made.url, take_from_the_suite, *works)
    yield made
    server.drop(database)


@pytest.fixture
def undone(granted: Granted, within: Callable[[str, Callable[[Connection], Any]], Any]) -> Callable[..., Any]:
    """Work as a superuser on the database in which everything was granted, and undo what it does."""

    def call(work: Callable[[Connection], Any]) -> Any:
        answers: list[Any] = []

        def undo(connection: Connection) -> None:
            with connection.begin_nested() as transaction:
                answers.append(work(connection))
                transaction.rollback()

        within(granted.url, undo)
        return answers[0]

    return call
