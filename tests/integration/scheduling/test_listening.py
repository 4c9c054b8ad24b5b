"""A worker that listens starts what is ready at once, and what it is not told of by its next poll."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event, make_url

from agentruns.domain.graph.returns import Finish
from agentruns.errors import InvalidOptionError
from agentruns.operations.embedded import EmbeddedServer
from agentruns.runtime import listener
from agentruns.runtime.shutdown import ShutdownSignal
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.worker import AgentWorker
from agentruns.runtime.worker_options import AgentWorkerOptions
from agentruns.store.wake_ups import channel_of
from agentruns.testing.drives import TENANT, DriveWorld, chain, open_world, sleep_for_ever
from agentruns.testing.faults import WireProxy
from agentruns.testing.listening import Ear
from agentruns.testing.own_server import own_server
from agentruns.testing.pooler import Pooler
from agentruns.testing.strangers import Stranger

Run = Callable[[Coroutine[Any, Any, Any]], Any]
InWorld = Callable[..., None]

MAJOR = int(os.environ.get("AGENTRUNS_TEST_MAJOR", "18"))
LONG = timedelta(minutes=1)
#: Longer than any test: what happens sooner has another cause.
NEVER = timedelta(minutes=1)
SOON = timedelta(milliseconds=300)
STARTED = "graph-node-attempt-started"
#: Longer than a notification that was sent takes to be heard.
HEARD = 0.3

GRAPH = chain(a=lambda _context: Finish({}))
LISTENERS = "pid <> pg_backend_pid() AND datname = current_database() AND query LIKE 'LISTEN%'"


@asynccontextmanager
async def working(world: DriveWorld, **options: Any) -> AsyncIterator[AgentWorker]:
    """Let a worker work that never polls, unless the options say otherwise."""
    given = {"poll_interval": NEVER, "supervision_interval": None, **options}
    worker = AgentWorker(
        world.store, world.executables, tenants=[TENANT], loop=world.loop, options=AgentWorkerOptions(**given)
    )
    shutdown = ShutdownSignal()
    task = asyncio.create_task(worker.run(shutdown))
    try:
        yield worker
    finally:
        shutdown.drain()
        await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # another task changes it
            await asyncio.sleep(0.01)


@contextmanager
def claims(store: AgentRunStore) -> Iterator[list[str]]:
    """Collect the claims that a store sends within the block; only they weigh the histories that they bring."""
    texts: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "weighed AS MATERIALIZED" in statement:
            texts.append(statement)

    event.listen(store._engine.sync_engine, "before_cursor_execute", note)
    try:
        yield texts
    finally:
        event.remove(store._engine.sync_engine, "before_cursor_execute", note)


async def tell(world: DriveWorld, *payloads: str) -> None:
    for payload in payloads:
        await world.rows("SELECT pg_notify('agentruns_agentruns', :payload)", payload=payload)


async def settled(found: list[str]) -> int:
    """Give the number once it no longer grows."""
    count = -1
    while count != len(found):
        count = len(found)
        await asyncio.sleep(HEARD)
    return count


# --- what is told ----------------------------------------------------------------------------------------------------


def test_a_run_is_started_when_it_is_submitted_however_rarely_the_worker_polls(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with working(world) as worker:
            await until(lambda: worker.is_listening)
            for count in (1, 2, 3):
                await world.submitted()
                await world.until(STARTED, count=count)
            assert worker.health.reason is None
        assert not worker.is_listening
        async with asyncio.timeout(20):
            while await world.rows(f"SELECT 1 FROM pg_stat_activity WHERE {LISTENERS}"):  # noqa: S608  # our own text
                await asyncio.sleep(0.05)

    in_world(work, GRAPH, lease=LONG)


def test_N1_SCH_12_with_every_notification_dropped_a_poll_finds_the_runs(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        world.store.notifier.is_on = False
        options = {"poll_interval": SOON, "poll_interval_listening": SOON, "drain_timeout": timedelta(0), "slots": 3}
        async with working(world, **options) as worker, Ear.at(world.url) as ear:
            await until(lambda: worker.is_listening)
            with claims(world.store) as found:
                await asyncio.gather(*(world.submitted() for _ in range(3)))
                before = len(found)
                await world.until(STARTED, count=3)
                # The poll that was under way may have been too early, the next one is not; then no slot is idle.
                assert len(found) - before <= 2
            assert ear.payloads == []

    in_world(work, chain(a=sleep_for_ever), lease=LONG)


def test_SCH_12_late_and_repeated_notifications_cost_a_claim_and_change_nothing(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        world.store.notifier.is_on = False
        async with working(world) as worker:
            await until(lambda: worker.is_listening)
            with claims(world.store) as found:
                await world.submitted()
                assert await settled(found) <= 1
                await tell(world, *[TENANT.text] * 5)
                await world.until(STARTED)
                await tell(world, *[TENANT.text] * 5)
                await until(lambda: len(found) > 1)
                assert await settled(found) <= 12
        assert await world.attempts() == [("a", 1, 1)]

    in_world(work, GRAPH, lease=LONG)


def test_another_tenants_wake_up_wakes_nobody_and_one_without_a_tenant_wakes_all(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with working(world) as worker:
            await until(lambda: worker.is_listening)
            with claims(world.store) as found:
                before = await settled(found)
                await tell(world, "somebody-else", TENANT.text.upper(), "x" * 7_000)
                assert await settled(found) == before
                await tell(world, "")
                await until(lambda: len(found) == before + 1)
                await tell(world, TENANT.text)
                await until(lambda: len(found) == before + 2)

    in_world(work, GRAPH, lease=LONG)


def test_a_full_worker_that_is_told_of_more_asks_for_nothing_until_a_slot_is_free(in_world: InWorld) -> None:
    turns = asyncio.Semaphore(0)

    async def a(_context: Any) -> Finish:
        await turns.acquire()
        return Finish({})

    async def work(world: DriveWorld) -> None:
        async with working(world, slots=1, drain_timeout=timedelta(0)) as worker:
            await until(lambda: worker.is_listening)
            await world.submitted()
            await world.until(STARTED)
            with claims(world.store) as found:
                await world.submitted()
                await tell(world, TENANT.text, "")
                assert await settled(found) == 0
                turns.release()
                await world.until(STARTED, count=2)
                assert len(found) == 1

    in_world(work, chain(a=a), lease=LONG)


def test_another_schemas_channel_is_another_one(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with working(world) as worker:
            await until(lambda: worker.is_listening)
            with claims(world.store) as found:
                before = await settled(found)
                await world.rows("SELECT pg_notify('agentruns_other', '')")
                assert await settled(found) == before

    in_world(work, GRAPH, lease=LONG)


# --- a connection that is lost ---------------------------------------------------------------------------------------


def test_a_listener_that_is_terminated_listens_again_and_says_both_once(
    in_world: InWorld, caplog: pytest.LogCaptureFixture
) -> None:
    lost, again = ("WARNING", "wake-ups do not arrive: the worker polls"), ("INFO", "wake-ups arrive again")

    def said() -> list[tuple[str, str]]:
        return [(each.levelname, each.getMessage()) for each in caplog.records if "wake-ups" in each.getMessage()]

    async def has_said(*expected: tuple[str, str]) -> None:
        await until(lambda: said() == list(expected))

    async def work(world: DriveWorld) -> None:
        async with working(world) as worker:
            await until(lambda: worker.is_listening)
            for count in (1, 2):
                await world.rows(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {LISTENERS}")  # noqa: S608  # our own text
                # It may listen again before anybody looks.
                await has_said(*[lost, again] * count)
                assert (worker.is_listening, worker.health.reason) == (True, None)
                await world.submitted()
                await world.until(STARTED, count=count)

    with caplog.at_level(logging.INFO, "agentruns.runtime.listener"):
        in_world(work, GRAPH, lease=LONG)
    assert said() == [lost, again] * 2


def test_a_connection_that_falls_silent_is_given_up(
    database_url: str, in_world: InWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "_KEEP_ALIVE", 0.2)
    monkeypatch.setattr(listener, "_BOUND", 2.0)

    async def work(world: DriveWorld) -> None:
        async with WireProxy.before(database_url) as proxy, working(world, listen_url=proxy.url) as worker:
            await until(lambda: worker.is_listening)
            # What asks whether the connection lives is a statement that the driver has prepared.
            held = proxy.hold(b"__asyncpg_stmt")
            await until(held.arrived.is_set)
            await until(lambda: "wake-ups do not arrive" in caplog.text)
            await until(lambda: worker.is_listening)
            await world.submitted()
            await world.until(STARTED)

    in_world(work, GRAPH, lease=LONG)


def test_H4_what_is_submitted_between_a_loss_and_the_next_listening_is_found_by_the_poll_that_follows_it(
    database_url: str, in_world: InWorld
) -> None:
    async def work(world: DriveWorld) -> None:
        async with WireProxy.before(database_url) as proxy, working(world, listen_url=proxy.url) as worker:
            await until(lambda: worker.is_listening)
            with claims(world.store) as found:
                proxy.take_down()
                await until(lambda: worker.health.reason == "listener_down")
                assert worker.health.is_ready
                # That it is lost was looked after; from now on nothing is heard, and the next poll is far.
                before = await settled(found)
                await world.submitted()
                assert await settled(found) == before
                proxy.bring_up()
                await world.until(STARTED)
                assert worker.is_listening

    in_world(work, GRAPH, lease=LONG)


def test_H4_while_nothing_is_heard_the_short_interval_applies(database_url: str, in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        options = {"poll_interval": timedelta(milliseconds=50), "poll_interval_listening": NEVER}
        async with WireProxy.before(database_url) as proxy, working(world, listen_url=proxy.url, **options) as worker:
            await until(lambda: worker.is_listening)
            proxy.take_down()
            await until(lambda: worker.health.reason == "listener_down")
            with claims(world.store) as found:
                await until(lambda: len(found) > 3)
            proxy.bring_up()
            await until(lambda: worker.is_listening)
            with claims(world.store) as found:
                assert await settled(found) <= 1

    in_world(work, GRAPH, lease=LONG)


def test_a_server_that_restarts_loses_no_run_and_the_worker_listens_again(run: Run) -> None:
    async def work(server: EmbeddedServer) -> None:
        url = server.url.render_as_string(hide_password=False)
        async with open_world(url, GRAPH, lease=LONG) as world, working(world) as worker:
            await until(lambda: worker.is_listening)
            await asyncio.to_thread(server.stop)
            await until(lambda: not worker.is_listening)
            await asyncio.to_thread(server.start)
            await until(lambda: worker.is_listening)
            await world.submitted()
            await world.until(STARTED)
            assert await world.attempts() == [("a", 1, 1)]

    with own_server(major=MAJOR) as server:
        run(work(server))


# --- where listening cannot work -------------------------------------------------------------------------------------


def test_a_pooler_is_recognised_and_the_worker_polls(database_url: str, in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with (
            Pooler.before(database_url) as pooler,
            working(world, listen_url=pooler.url, poll_interval=SOON) as worker,
        ):
            await until(lambda: worker.health.reason == "listener_behind_pooler")
            assert not worker.is_listening
            await world.submitted()
            await world.until(STARTED)
            assert pooler.texts
            assert not any(b"LISTEN" in text for text in pooler.texts)

    in_world(work, GRAPH, lease=LONG)


def test_an_address_where_nobody_answers_degrades_the_worker_and_nothing_else(
    database_url: str, in_world: InWorld, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = make_url(database_url).set(host="127.0.0.1", port=9, query={}, password="secret")  # noqa: S106
    assert "secret" not in repr(AgentWorkerOptions(listen_url=nobody.render_as_string(hide_password=False)))

    async def work(world: DriveWorld) -> None:
        async with working(world, listen_url=nobody, poll_interval=SOON) as worker:
            await until(lambda: worker.health.reason == "listener_down")
            await world.submitted()
            await world.until(STARTED)

    in_world(work, GRAPH, lease=LONG)
    assert [each.getMessage() for each in caplog.records if "wake-ups" in each.getMessage()] == [
        "wake-ups do not arrive: the worker polls"
    ]
    assert "secret" not in caplog.text


def test_I4_a_worker_that_does_not_listen_has_no_connection_for_it(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with working(world, listens=False, poll_interval=SOON) as worker:
            await world.submitted()
            await world.until(STARTED)
            assert (worker.is_listening, worker.health.reason) == (False, None)
            assert await world.rows(f"SELECT 1 FROM pg_stat_activity WHERE {LISTENERS}") == []  # noqa: S608  # our own text

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.parametrize(
    ("options", "refused", "reason"),
    [
        ({"listen_url": "mysql://host/database"}, "listen_url", "out_of_range"),
        ({"listen_url": "postgresql://host/database?sslmode=require"}, "listen_url", "out_of_range"),
        ({"listen_url": "postgresql://host:99999/database"}, "listen_url", "out_of_range"),
        ({"listen_url": "postgresql://host/database?timeout=soon"}, "listen_url", "out_of_range"),
        ({"listen_url": "my-secret"}, "listen_url", "not_readable"),
        ({"listen_url": "postgresql://user:my-secret@host:port/database"}, "listen_url", "not_readable"),
        ({"listen_url": 5}, "listen_url", "not_readable"),
        ({"listen_url": "postgresql://host/database", "listens": False}, "listen_url", "not_used"),
        ({"listens": "yes"}, "listens", "out_of_range"),
        ({"poll_interval_listening": timedelta(milliseconds=199)}, "poll_interval_listening", "out_of_range"),
        ({"poll_interval_listening": timedelta(minutes=5, microseconds=1)}, "poll_interval_listening", "out_of_range"),
        ({"poll_interval_listening": 15.0}, "poll_interval_listening", "out_of_range"),
        ({"poll_interval": "often"}, "poll_interval", "out_of_range"),
    ],
)
def test_what_can_be_seen_at_construction_is_refused_there(options: Any, refused: str, reason: str) -> None:
    with pytest.raises(InvalidOptionError) as error:
        AgentWorkerOptions(**options)
    assert (error.value.option, error.value.reason) == (refused, reason)
    assert "my-secret" not in str(error.value)


def test_the_rare_poll_is_never_more_frequent_than_the_other_one() -> None:
    assert AgentWorkerOptions().poll_interval_listening == timedelta(seconds=15)
    assert AgentWorkerOptions(poll_interval=NEVER).poll_interval_listening == NEVER


def test_SCH_15_a_listener_that_ends_while_it_connects_leaves_no_connection(in_world: InWorld) -> None:
    """Whether it is looking for the server, greeting it or listening already."""

    async def work(world: DriveWorld) -> None:
        stranger = Stranger(world.url)
        await world.store.ask_time()
        before = await stranger.connection_count()
        subject = listener.Subject(channel=channel_of("agentruns"), lost="lost", regained="regained")
        for step in range(150):
            async with listener.Listener(world.store, None, subject=subject, heard=lambda _: None, wake=lambda: None):
                await asyncio.sleep(step * 0.0001)
        async with asyncio.timeout(20):
            while await stranger.connection_count() > before:  # the server notices
                await asyncio.sleep(0.05)

    gc.disable()
    try:
        in_world(work, GRAPH)
    finally:
        gc.enable()
