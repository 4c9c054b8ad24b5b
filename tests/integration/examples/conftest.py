"""The host application of the examples, on databases that its own Alembic project has migrated."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import Any

import pytest
from attrs import define, field
from httpx import ASGITransport, AsyncClient, Response
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.testing.faults import WireProxy

PROJECT = Path(__file__).parents[3] / "examples" / "host_app"
sys.path.insert(0, str(PROJECT))  # a project of its own, as one that is copied

from order_reviews.access import ASK, KEEP_ORDERS, READ, WITHDRAW, Caller, Client  # noqa: E402
from order_reviews.agent import deployment  # noqa: E402
from order_reviews.app import create_app  # noqa: E402
from order_reviews.settings import Settings  # noqa: E402

Run = Callable[[Coroutine[Any, Any, Any]], Any]
Work = Callable[["Service"], Coroutine[Any, Any, None]]
InService = Callable[..., None]

ORDER = {"amount_cents": 12_500, "lines": [{"sku": "lamp", "quantity": 2}]}
EVERYTHING = (KEEP_ORDERS, ASK, READ, WITHDRAW)
CLIENTS = tuple(
    Client(token=f"token-of-{name}", caller=Caller(tenant=tenant, subject=subject, scopes=frozenset(scopes)))
    for name, tenant, subject, scopes in (
        ("north", "north", "north-desk", EVERYTHING),
        ("north-later", "north", "north-desk", [ASK, READ]),
        ("south", "south", "south-desk", EVERYTHING),
        ("reader", "north", "reader", [READ]),
        ("asker", "north", "asker", [ASK]),
    )
)


@define
class Service:
    """The running application with its clients, and the tests' own way to its database.

    Attributes:
        url: past every proxy.
        client: without a token.
        engine: of the tests.
    """

    url: str
    client: AsyncClient
    engine: AsyncEngine = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.engine = create_async_engine(self.url, poolclass=NullPool)

    async def send(self, method: str, path: str, sent: object = None, *, who: str | None = "north") -> Response:
        headers = {} if who is None else {"Authorization": f"Bearer token-of-{who}"}
        return await self.client.request(method, path, json=sent, headers=headers)

    async def place(self, reference: str, *, who: str = "north") -> None:
        assert (await self.send("PUT", f"/orders/{reference}", ORDER, who=who)).status_code == 201

    async def ask(self, key: str, reference: str = "A-1", *, note: str = "", who: str = "north") -> Response:
        sent = {"submission_key": key, "order": reference, "note": note}
        return await self.send("POST", "/reviews", sent, who=who)

    async def execute(self, statement: str) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(text(statement))

    async def scalar(self, statement: str) -> Any:
        """Read one value, as committed."""
        async with self.engine.connect() as connection:
            return (await connection.execute(text(statement))).scalar_one()

    async def counts(self) -> tuple[int, int]:
        """Count our rows and the runs."""
        return (
            await self.scalar("SELECT count(*) FROM public.order_reviews"),
            await self.scalar("SELECT count(*) FROM agentruns.runs"),
        )

    async def until_waiting(self, count: int) -> None:
        """Look until that many connections wait for a lock."""
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        async with asyncio.timeout(100):
            while await self.scalar(waiting) < count:
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with deployment.open(self.url, tenant=["north", "south"]) as agents, agents.worker():
            yield

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Read a review until it is over."""
        async with asyncio.timeout(100):
            while True:
                shown: dict[str, Any] = (await self.send("GET", f"/reviews/{run_id}")).json()
                if shown["outcome"] is not None:
                    return shown
                await asyncio.sleep(0.02)


def call_alembic(url: str, arguments: list[str], *, project: Path = PROJECT) -> Popen[str]:
    """Start a command in a project as a deploy does; together its two streams are empty when all is well."""
    program = Path(sys.executable).with_name("alembic")
    environment = {**os.environ, "ORDER_REVIEWS_DATABASE_URL": url, "PYTHONDONTWRITEBYTECODE": "1"}
    return Popen([program, *arguments], cwd=project, env=environment, stdout=PIPE, stderr=STDOUT, text=True)  # noqa: S603


@pytest.fixture(scope="session")
def migrated_project(server: Any) -> Iterator[str]:
    """A database that the project has migrated, for tests to clone."""
    name = server.empty()
    assert call_alembic(server.url(name), ["upgrade", "heads"]).communicate()[0] == ""
    yield name
    server.drop(name)


@pytest.fixture
def host_url(server: Any, migrated_project: str) -> Iterator[str]:
    """A migrated database of the test's own."""
    name = server._create(migrated_project)
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def deploy() -> Callable[..., Popen[str]]:
    """Start a command of Alembic's: ``deploy(url, arguments, project=…)``."""
    return call_alembic


@pytest.fixture
def proxy(host_url: str, run: Run) -> Iterator[WireProxy]:
    """A wire to the database that a test can break: ``in_service(work, url=proxy.url)``."""
    before = WireProxy.before(host_url)
    yield run(before.__aenter__())
    run(before.__aexit__(None, None, None))


@pytest.fixture
def in_service(host_url: str, run: Run) -> InService:
    """Run a test on the running application: ``in_service(work, url=…, **settings)``; the order A-1 is there."""

    async def serve(work: Work, url: str, settings: dict[str, Any]) -> None:
        app = create_app(Settings(database_url=url, clients=CLIENTS, **settings))
        transport = ASGITransport(app)
        async with app.router.lifespan_context(app), AsyncClient(transport=transport, base_url="http://test") as client:
            service = Service(url=host_url, client=client)
            await service.place("A-1")
            await work(service)

    def call(work: Work, *, url: str | None = None, **settings: Any) -> None:
        run(serve(work, url or host_url, settings))

    return call
