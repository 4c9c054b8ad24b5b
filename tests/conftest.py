"""A real PostgreSQL for the tests: one server, one template that is migrated once, and a clone of it for each test.

A role that is no superuser owns the template, and another one is granted what a runtime needs.
``AGENTRUNS_TEST_MAJOR`` chooses the server: 16, 17 or 18. Workers of one session, and sessions at once, share it. With
``AGENTRUNS_TEST_POOLER=1`` what a runtime sees is behind a PgBouncer that pools transactions.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
from jsonschema import Draft202012Validator
from sqlalchemy import URL, Connection, make_url, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns import migrations
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.wire import to_wire
from agentruns.operations import grants
from agentruns.operations.embedded import EmbeddedServer
from agentruns.runtime.engine import start_settings
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.store.options import StoreOptions
from agentruns.store.privileges import Role, expected
from agentruns.testing.drives import DriveWorld, open_world
from agentruns.testing.faults import WireProxy
from agentruns.testing.pgbouncer import PgBouncer

MAJOR = int(os.environ.get("AGENTRUNS_TEST_MAJOR", "18"))
HAS_POOLER = os.environ.get("AGENTRUNS_TEST_POOLER") == "1"
#: A file system in memory: a clone there takes a tenth of the time that a disk takes to make its files.
_MEMORY = Path("/dev/shm")  # noqa: S108 - the server's folder in it is its account's alone
#: Of a pooler, for each test's database: enough for all transactions that a test holds open at once.
BACKENDS = 40
_NEEDED_BYTES = 4 * 2**30
#: Roles belong to the server, so all sessions share these.
OWNER = "agentruns_owner"
RUNTIME = "agentruns_runtime"
_BUILDING = "agentruns_building"
_LOCK = 0x6167656E74

Run = Callable[[Coroutine[Any, Any, Any]], Any]
InWorld = Callable[..., None]
Within = Callable[[str, Callable[[Connection], Any]], Any]


def _data_directory() -> Path:
    has_room = os.access(_MEMORY, os.W_OK) and psutil.disk_usage(str(_MEMORY)).free >= _NEEDED_BYTES
    return (_MEMORY if has_room else Path(tempfile.gettempdir())) / f"agentruns-tests-{os.geteuid()}-{MAJOR}"


class Server:
    """The server of a session: makes databases and drops them."""

    def __init__(self, base: URL, runner: asyncio.Runner) -> None:
        self.major = MAJOR
        self._base = base
        self._runner = runner
        self._template = f"agentruns_{_content_of_template()}"
        self._names = (f"test_{os.getpid()}_{number}" for number in count())
        self.clones = set[str]()
        self._admin: asyncpg.Connection[Any] = runner.run(self._connect())

    def url(self, database: str, *, role: str | None = None) -> str:
        """Give the URL of a database, for a superuser unless a role is named."""
        user = role or self._base.username
        return self._base.set(database=database, username=user).render_as_string(hide_password=False)

    def superuser_url(self, url: str) -> str:
        """Give the superuser's URL of the database that another URL names."""
        return make_url(url).set(username=self._base.username).render_as_string(hide_password=False)

    def execute(self, statement: str) -> None:
        self._runner.run(self._admin.execute(statement))

    def clone(self) -> str:
        """Make a database that is migrated to the head."""
        self.clones.add(name := self._create(self._template))
        return name

    def empty(self) -> str:
        """Make a database without anything of ours."""
        return self._create("template1")

    def drop(self, database: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def prepare(self) -> None:
        """Migrate the template unless another worker or session has; drop what killed sessions left behind."""
        self.execute(f"SELECT pg_advisory_lock({_LOCK})")
        try:
            databases = self._all("SELECT datname FROM pg_database")
            if self._template not in databases:
                self.drop(_BUILDING)
                for role in {OWNER, RUNTIME}.difference(self._all("SELECT rolname FROM pg_roles")):
                    self.execute(f"CREATE ROLE {role} LOGIN")
                self.execute(f"CREATE DATABASE {_BUILDING}")
                self.execute(f"GRANT CREATE ON DATABASE {_BUILDING} TO {OWNER}")
                self._runner.run(self._migrate(_BUILDING))
                self.execute(f"ALTER DATABASE {_BUILDING} RENAME TO {self._template}")
            for name in databases:
                if name.startswith("test_") and not psutil.pid_exists(int(name.split("_")[1])):
                    self.drop(name)
        finally:
            self.execute(f"SELECT pg_advisory_unlock({_LOCK})")

    def close(self) -> None:
        self._runner.run(self._admin.close())

    async def _connect(self) -> asyncpg.Connection[Any]:
        host, port = str(self._base.query["host"]), int(str(self._base.query["port"]))
        return await asyncpg.connect(host=host, port=port, user=self._base.username, database="postgres")

    async def _migrate(self, database: str) -> None:
        engine = create_async_engine(self.url(database), poolclass=NullPool)
        async with engine.begin() as connection:
            await connection.execute(text(f"SET LOCAL ROLE {OWNER}"))
            await connection.run_sync(migrations.upgrade)
        async with engine.begin() as connection:
            await connection.run_sync(grants.apply, grants.GrantedRoles(runtime=RUNTIME))
        await engine.dispose()

    def _create(self, template: str) -> str:
        name = next(self._names)
        # Files in memory are copied, and dropped again, in two thirds of the time that logging their pages takes.
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return name

    def _all(self, statement: str) -> list[str]:
        return [row[0] for row in self._runner.run(self._admin.fetch(statement))]


def _content_of_template() -> str:
    """Name what a template is made from: another one is made when it changes."""
    manifest = files("agentruns.migrations").joinpath("manifest.json").read_bytes()
    granted = ", ".join(map(str, sorted(expected(Role.RUNTIME))))
    return hashlib.sha256(manifest + granted.encode()).hexdigest()[:16]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out, behind a pooler, what needs a way to the server itself."""
    for item in items if HAS_POOLER else ():
        for direct in item.iter_markers("direct"):
            item.add_marker(pytest.mark.skip(reason=direct.args[0]))


@pytest.fixture(scope="session", autouse=True)
def every_snapshot_satisfies_its_document() -> Iterator[None]:
    """SUB-19: hold each snapshot that the suite builds, wherever it does, against the published document."""
    document = json.loads(files("agentruns.schemas").joinpath("agent-run-snapshot-1.0.0.json").read_bytes())
    validator, check = Draft202012Validator(document), AgentRunSnapshot.__attrs_post_init__
    known: set[int] = set()
    refused: list[str] = []

    def checked(snapshot: AgentRunSnapshot) -> None:
        check(snapshot)
        if hash(snapshot) not in known:
            known.add(hash(snapshot))
            refused.extend(error.message for error in validator.iter_errors(to_wire(snapshot)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AgentRunSnapshot, "__attrs_post_init__", checked)
        yield
    assert refused == []


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server, with its template migrated."""
    with (
        EmbeddedServer(_data_directory(), major=MAJOR, durable=False) as embedded,
        asyncio.Runner() as runner,
    ):
        made = Server(embedded.url, runner)
        made.prepare()
        yield made
        made.close()


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """The name of a migrated database of the test's own."""
    name = server.clone()
    yield name
    server.drop(name)


@pytest.fixture(scope="session")
def pooler(server: Server) -> Iterator[PgBouncer | None]:
    """What stands between a runtime and the server: nothing, unless a pooler is asked for."""
    if not HAS_POOLER:
        yield None
        return
    target = make_url(server.url("postgres"))
    # What a store sends with its start packet such a pooler drops, but for its own name.
    settings = {name: value for name, value in start_settings(StoreOptions()).items() if name != "application_name"}
    users = [RUNTIME, OWNER, str(target.username)]
    with (
        PgBouncer.before(target, users=users, backends=BACKENDS, settings=settings) as started,
        pytest.MonkeyPatch.context() as patch,
    ):
        # As ?statement_cache_size=0 in the URL of a store would have it; engines of the tests' own take no such URL.
        patch.setitem(asyncpg.connect.__kwdefaults__ or {}, "statement_cache_size", 0)
        yield started


@pytest.fixture
def database_url(server: Server, database: str, pooler: PgBouncer | None) -> str:
    """The database as a runtime sees it, with the grants of one; SQLAlchemy's URL for asyncpg."""
    url = server.url(database, role=RUNTIME)
    return url if pooler is None else pooler.url(make_url(url)).render_as_string(hide_password=False)


@pytest.fixture
def owner_url(server: Server, database: str) -> str:
    """The same database as a superuser sees it, who looks at everything and damages what a test wants damaged."""
    return server.url(database)


@pytest.fixture
def empty_database_url(server: Server) -> Iterator[str]:
    """A database of the test's own without anything of ours."""
    name = server.empty()
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def run() -> Iterator[Run]:
    """Run coroutines on one event loop of the test's own: ``run(work())``. Dispose of engines on it too."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def within(run: Run, server: Server) -> Within:
    """Call a function with a superuser's connection to the database of a URL: ``within(url, work)``.

    It is in a transaction, committed unless the function raises.
    """

    async def call(url: str, work: Callable[[Connection], Any]) -> Any:
        async with create_async_engine(url, poolclass=NullPool).begin() as connection:
            return await connection.run_sync(work)

    return lambda url, work: run(call(server.superuser_url(url), work))


@pytest.fixture
def in_world(database_url: str, owner_url: str, run: Run) -> InWorld:
    """Run a test in a world of one graph: ``in_world(work, graph, **options)`` of :func:`open_world`."""

    def call(work: Callable[[DriveWorld], Coroutine[Any, Any, None]], graph: GraphBundle, **options: Any) -> None:
        async def opened() -> None:
            async with open_world(owner_url, graph, store_url=database_url, **options) as world:
                await work(world)

        run(opened())

    return call


@pytest.fixture
def behind_a_wire(database_url: str, owner_url: str, run: Run) -> Callable[..., None]:
    """Run a test behind a proxy: ``behind_a_wire(work, graph, **options)`` of :func:`open_world`.

    What the world's own looks and damages read and write goes past the proxy.
    """

    def call(
        work: Callable[[DriveWorld, WireProxy], Coroutine[Any, Any, None]], graph: GraphBundle, **options: Any
    ) -> None:
        async def opened() -> None:
            async with (
                WireProxy.before(database_url) as proxy,
                open_world(owner_url, graph, store_url=proxy.url, **options) as world,
            ):
                await work(world, proxy)

        run(opened())

    return call
