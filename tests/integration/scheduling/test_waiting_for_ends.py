"""A call that waits for the end of a run hears of it, and finds it by looking where it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import make_url

from agentruns.domain.graph.returns import Finish
from agentruns.domain.ids import RunId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.status import RunStatus
from agentruns.errors import InvalidOptionError, UnitOfWorkError
from agentruns.runtime import ended_runs
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions
from agentruns.testing.cancelling import request_cancellation
from agentruns.testing.drives import TENANT, DriveWorld, chain
from agentruns.testing.listening import Ear
from agentruns.testing.pooler import Pooler

InWorld = Callable[..., None]

LONG = timedelta(minutes=1)
#: Longer than any test: what happens sooner has another cause than looking.
NEVER = 60.0
LISTENERS = "pid <> pg_backend_pid() AND datname = current_database() AND query LIKE 'LISTEN \"agentruns:end%'"

GRAPH = chain(a=lambda _context: Finish({}))


@pytest.fixture
def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but news end a pause."""
    for name in ("_FIRST_PAUSE", "_LONGEST_PAUSE", "_LONGEST_PAUSE_LISTENING"):
        monkeypatch.setattr(ended_runs, name, NEVER)


@asynccontextmanager
async def elsewhere(world: DriveWorld, **options: Any) -> AsyncIterator[DurableAgentRuns]:
    """Give the runs of another process: of a store of its own, with connections of its own."""
    async with AgentRunStore(world.store_url, StoreOptions(**options)) as store:
        yield DurableAgentRuns(store, world.executables)


@asynccontextmanager
async def waiting(runs: DurableAgentRuns, run_id: RunId) -> AsyncIterator[asyncio.Task[AgentRunSnapshot]]:
    """Wait for a run beside the block, which must see the end of it."""
    task = asyncio.create_task(runs.wait(TENANT, run_id, timeout=LONG))
    try:
        yield task
        async with asyncio.timeout(20):
            assert (await task).outcome is not None
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # another task changes it
            await asyncio.sleep(0.01)


async def listener_count(world: DriveWorld, expected: int) -> None:
    """Return once so many connections listen."""
    async with asyncio.timeout(20):
        while len(await world.rows(f"SELECT 1 FROM pg_stat_activity WHERE {LISTENERS}")) != expected:  # noqa: S608  # our own text; the server changes it
            await asyncio.sleep(0.02)


# --- what is heard ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("never_looks")
def test_the_end_of_a_run_that_another_process_drives_is_heard_of(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with elsewhere(world) as runs:
            for _ in range(3):
                run_id = await world.submitted()
                async with waiting(runs, run_id) as task:
                    await until(lambda: runs._store.ends.is_listening)
                    assert not task.done()
                    await world.driven(run_id)
            # All of them have listened on one connection.
            await listener_count(world, 1)
        await listener_count(world, 0)

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.usefixtures("never_looks")
def test_an_end_between_the_first_look_and_the_beginning_of_listening_is_seen(in_world: InWorld) -> None:
    """What was told before was told to nobody, so whoever waits looks once more when listening begins."""

    async def work(world: DriveWorld) -> None:
        async with elsewhere(world) as runs:
            run_id, load = await world.submitted(), runs.load

            async def load_before_the_end(*given: Any) -> AgentRunSnapshot:
                snapshot = await load(*given)
                if snapshot.outcome is None:
                    await world.driven(run_id)
                    await world.store.notifier.close()
                return snapshot

            runs.load = load_before_the_end  # type: ignore[method-assign,assignment]
            async with waiting(runs, run_id):
                pass

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.usefixtures("never_looks")
def test_only_who_waits_for_the_run_that_has_ended_looks(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        first, second = await world.submitted(), await world.submitted()
        async with elsewhere(world) as runs:
            looked, load = list[RunId](), runs.load

            async def noted(tenant_id: Any, run_id: RunId) -> AgentRunSnapshot:
                looked.append(run_id)
                return await load(tenant_id, run_id)

            runs.load = noted  # type: ignore[method-assign,assignment]
            async with waiting(runs, second):
                async with waiting(runs, first), waiting(runs, first):
                    # Each looks twice: before it pauses, and when listening begins.
                    await until(lambda: len(looked) == 6)
                    await world.driven(first)
                await world.driven(second)
        assert looked.count(second) == 3
        assert looked.count(first) == 6

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.usefixtures("never_looks")
def test_an_end_by_this_process_is_known_without_listening(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        world.store.ends._listens = False
        run_id = await world.submitted()
        async with waiting(world.runs, run_id) as task:
            await until(lambda: bool(world.store.ends._waiting))
            assert not task.done()
            await world.driven(run_id)
        await listener_count(world, 0)

    in_world(work, GRAPH, lease=LONG)


def test_SCH_13_each_end_is_told_of_by_the_id_of_its_run_and_nothing_else_is(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with Ear.at(world.url, is_for_ends=True) as ear:
            succeeded, cancelled = await world.submitted(), await world.submitted()
            await request_cancellation(world, cancelled)
            await world.store.release((await world.claimed(succeeded)).fence)
            await world.driven(succeeded)
            assert await ear.hears(1) == [succeeded.text]
            await world.driven(cancelled)
            assert await ear.hears(2) == [succeeded.text, cancelled.text]
            assert (await world.loaded(cancelled)).status is RunStatus.CANCELLED

    in_world(work, GRAPH, lease=LONG)


# --- what is not heard -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listens", [True, False])
def test_SCH_12_an_end_that_nobody_tells_of_is_found_by_looking(in_world: InWorld, *, listens: bool) -> None:
    async def work(world: DriveWorld) -> None:
        world.store.notifier.is_on = False
        async with elsewhere(world, notifies=listens) as runs:
            run_id = await world.submitted()
            async with waiting(runs, run_id):
                if listens:
                    await until(lambda: runs._store.ends.is_listening)
                await world.driven(run_id)
            await listener_count(world, int(listens))

    in_world(work, GRAPH, lease=LONG)


@pytest.mark.usefixtures("never_looks")
def test_a_connection_that_is_lost_is_made_again_and_what_ended_meanwhile_is_seen(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with elsewhere(world) as runs:
            ends, run_id = runs._store.ends, await world.submitted()
            async with waiting(runs, run_id):
                await until(lambda: ends.is_listening)
                world.store.notifier.is_on = False
                await world.driven(run_id)
                await world.rows(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {LISTENERS}")  # noqa: S608  # our own text

    in_world(work, GRAPH, lease=LONG)


def test_behind_a_pooler_it_looks_and_never_listens(database_url: str, in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        async with Pooler.before(database_url) as pooler, elsewhere(world, listen_url=pooler.url) as runs:
            run_id = await world.submitted()
            async with waiting(runs, run_id):
                await until(lambda: runs._store.ends._listener.trouble == "listener_behind_pooler")
                await world.driven(run_id)
            assert pooler.texts
            assert not any(b"LISTEN" in text for text in pooler.texts)

    in_world(work, GRAPH, lease=LONG)


def test_an_address_for_listening_that_cannot_be_one_is_refused_before_anything_is_sent(database_url: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        AgentRunStore(database_url, StoreOptions(listen_url="postgresql://user:my-secret@host:port/database"))
    assert (refused.value.option, refused.value.reason) == ("listen_url", "not_readable")
    assert "my-secret" not in str(refused.value)
    hidden = make_url(database_url).set(password="my-secret")  # noqa: S106
    assert "my-secret" not in repr(StoreOptions(listen_url=hidden.render_as_string(hide_password=False)))


# --- the connection --------------------------------------------------------------------------------------------------


def test_a_connection_at_which_nobody_waits_any_more_is_closed_and_the_next_who_does_opens_another(
    in_world: InWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_runs, "_KEPT", 0.05)

    async def work(world: DriveWorld) -> None:
        async with elsewhere(world) as runs:
            for _ in range(2):
                run_id = await world.submitted()
                async with waiting(runs, run_id):
                    await until(lambda: runs._store.ends.is_listening)
                    await listener_count(world, 1)
                    await world.driven(run_id)
                await listener_count(world, 0)

    in_world(work, GRAPH, lease=LONG)


def test_a_run_that_has_ended_already_costs_no_connection(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        await world.driven(run_id)
        assert (await world.runs.wait(TENANT, run_id, timeout=LONG)).status is RunStatus.SUCCEEDED
        assert world.store.ends._task is None

    in_world(work, GRAPH, lease=LONG)


def test_calls_that_are_cancelled_or_outlive_their_store_leave_nothing(in_world: InWorld) -> None:
    async def work(world: DriveWorld) -> None:
        run_id = await world.submitted()
        async with elsewhere(world) as runs:
            calls = [asyncio.create_task(runs.wait(TENANT, run_id, timeout=LONG)) for _ in range(3)]
            await until(lambda: runs._store.ends.is_listening)
            calls[0].cancel()
            await asyncio.gather(calls[0], return_exceptions=True)
            assert len(runs._store.ends._waiting[run_id.text]) == 2
        await listener_count(world, 0)
        async with asyncio.timeout(20):
            ended = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError)
        assert [each.reason for each in ended[1:] if isinstance(each, UnitOfWorkError)] == ["closed"] * 2
        assert runs._store.ends._waiting == {}

    in_world(work, GRAPH, lease=LONG)
