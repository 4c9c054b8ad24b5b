"""Keys, sessions and transactions as applications use them, one test for each scenario."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from agentruns.domain.ids import AttemptId
from agentruns.domain.scalars import TenantId
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import (
    AgentSubmissionConflictError,
    AgentSubmissionNotFoundError,
    ExecutableGraphUnavailableError,
    InvalidValueError,
    RunNotFoundError,
)
from agentruns.runtime.joined import JoinedAgentRuns
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore

Race = Callable[[Any], None]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
SETTINGS = "SELECT name, setting FROM pg_catalog.pg_settings ORDER BY name"


def fresh() -> AgentSubmissionKey:
    return AgentSubmissionKey.generate()


class Transaction:
    """A transaction of an application, whatever it holds it by."""

    def __init__(self, holder: AsyncSession | AsyncConnection, runs: Any, joined: JoinedAgentRuns, kind: str) -> None:
        self.holder, self.runs, self.joined, self.kind = holder, runs, joined, kind

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the facade that takes this kind of transaction."""
        if self.kind in ("AsyncSession", "AsyncConnection"):
            return await getattr(self.runs, method)(*arguments, session=self.holder)
        return await self.holder.run_sync(lambda held: getattr(self.joined, method)(*arguments, session=held))

    async def execute(self, statement: str) -> Any:
        return await self.holder.execute(text(statement))


KINDS = ("AsyncSession", "AsyncConnection", "Session", "Connection")


@asynccontextmanager
async def transaction(arena: Any, kind: str, engine: Any = None) -> AsyncIterator[Transaction]:
    """Begin a transaction that is held by a kind of object, and roll it back unless it was committed."""
    joined, bind = JoinedAgentRuns(arena.kit.executables), engine or arena.engine
    async with AsyncSession(bind) if kind.endswith("Session") else bind.connect() as holder:
        yield Transaction(holder, arena.runs, joined, kind)


@pytest.mark.parametrize("ends_well", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_A1_row_and_run_appear_together_or_not_at_all(race: Race, kind: str, *, ends_well: bool) -> None:
    async def work(arena: Any) -> None:
        key, request = fresh(), arena.request()
        async with transaction(arena, kind) as ours, AgentRunStore(arena.kit.url) as store:
            await ours.execute(f"INSERT INTO public.notes VALUES ('{arena.tenant}')")  # noqa: S608
            before = (await ours.execute(SETTINGS)).all()
            inside = (await ours.execute("SELECT pg_current_xact_id(), now()")).one()
            assert (await ours.call("submit", key, request)).outcome is COMMITTED
            assert (await ours.execute(SETTINGS)).all() == before
            assert (await ours.execute("SELECT pg_current_xact_id(), now()")).one() == inside
            await unseen(arena, store, key, request)
            await (ours.holder.commit() if ends_well else ours.holder.rollback())
            if ends_well:
                assert (await store.claim(arena.tenant, request.run_id, AttemptId.generate())).fence.epoch.value == 1
            else:
                await unseen(arena, store, key, request)
        assert await arena.notes() == ends_well
        assert await arena.rows() == (ONE_RUN if ends_well else {})
        again = await arena.runs.submit(key, arena.request())
        assert again.outcome is (IDEMPOTENT if ends_well else COMMITTED)

    race(work)


async def unseen(arena: Any, store: AgentRunStore, key: AgentSubmissionKey, request: Any) -> None:
    """Neither readers nor workers see what is not committed."""
    with pytest.raises(AgentSubmissionNotFoundError):
        await arena.runs.load_by_key(arena.tenant, key)
    with pytest.raises(RunNotFoundError):
        await arena.runs.load(arena.tenant, request.run_id)
    with pytest.raises(RunNotFoundError):
        await store.claim(arena.tenant, request.run_id, AttemptId.generate())
    graphs = [arena.kit.graph.definition_digest]
    assert await store.claim_ready(arena.tenant, 1, attempt_ids=[AttemptId.generate()], graph_digests=graphs) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_A2_every_joined_call_manages_with_the_callers_only_connection(race: Race, kind: str) -> None:
    async def work(arena: Any) -> None:
        key, keyless = fresh(), arena.request(input={"n": 2})
        async with (
            arena.kit.engine(pool_size=1, max_overflow=0, pool_timeout=2) as engine,
            transaction(arena, kind, engine) as ours,
        ):
            await ours.execute("SELECT 1")
            assert await ours.call("publish", arena.tenant, arena.kit.graph) is IDEMPOTENT
            first = await ours.call("submit", key, arena.request())
            assert (await ours.call("submit", key, arena.request())).outcome is IDEMPOTENT
            with pytest.raises(AgentSubmissionConflictError):
                await ours.call("submit", key, keyless)
            assert (await ours.call("admit", keyless)).outcome is COMMITTED
            assert (await ours.call("submit", fresh(), keyless)).outcome is COMMITTED
            assert await ours.call("load_by_key", arena.tenant, key) == first.snapshot
            assert await ours.call("load", arena.tenant, first.snapshot.provenance.run_id) == first.snapshot
            assert engine.pool.checkedout() == 1
            await ours.holder.commit()
            assert engine.pool.status().startswith("Pool size: 1 ")
        assert await arena.rows() == {**dict.fromkeys(ONE_RUN, 2), "agent_submission_keys": 3}

    race(work)


def test_A3_every_other_kind_of_session_is_refused_by_every_method(race: Race) -> None:
    async def work(arena: Any) -> None:
        runs, joined = arena.runs, JoinedAgentRuns(arena.kit.executables)
        dsn = arena.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        raw = await asyncpg.connect(dsn=dsn)
        request, key = arena.request(), fresh()
        calls: dict[str, tuple[Any, ...]] = {
            "submit": (key, request),
            "admit": (request,),
            "load": (arena.tenant, request.run_id),
            "load_by_key": (arena.tenant, key),
            "publish": (arena.tenant, arena.kit.graph),
        }
        async with arena.engine.connect() as connection, AsyncSession(arena.engine) as session:
            factory = Session
            for (method, arguments), given in product(
                calls.items(), (raw, arena.engine, arena.engine.sync_engine, session.sync_session, factory, "session")
            ):
                with pytest.raises(TypeError, match="AsyncSession or AsyncConnection"):
                    await getattr(runs, method)(*arguments, session=given)
                if given is not session.sync_session:
                    with pytest.raises(TypeError, match="Session or Connection"):
                        getattr(joined, method)(*arguments, session=given)
            for (method, arguments), given in product(calls.items(), (session, connection)):
                with pytest.raises(TypeError, match="Session or Connection"):
                    getattr(joined, method)(*arguments, session=given)
        await raw.close()
        assert await arena.rows() == {}

    race(work)
    # A coroutine that nobody awaited would say so now.
    gc.collect()


@pytest.mark.parametrize(
    ("text", "reason", "offset"),
    [
        ("", "too_short", None),
        (" ", "too_short", None),
        ("k" * 15, "too_short", None),
        ("k" * 129, "too_long", None),
        ("0123456789\x00abcdef", "invalid_byte", 10),
        ("0123456789abcdef\ud800", "invalid_byte", 16),
        ("0123456789abcdé-", "invalid_byte", 14),
        ("0123456789abcde\n", "invalid_byte", 15),
        (" 123456789abcdef", "invalid_byte", 0),
        ("0f" * 5_000, "too_long", None),
    ],
)
def test_A6_a_key_out_of_bounds_is_refused_by_length_or_place(text: str, reason: str, offset: int | None) -> None:
    with pytest.raises(InvalidValueError) as refused:
        AgentSubmissionKey.parse(text)
    error = refused.value
    assert (error.type_name, error.reason, error.offset) == ("AgentSubmissionKey", reason, offset)
    assert len(text) < 2 or text not in f"{error} {error!r}"


@pytest.mark.parametrize("length", [16, 128])
def test_A6_the_shortest_and_the_longest_key_are_keys(race: Race, length: int) -> None:
    async def work(arena: Any) -> None:
        for character in "aZ0._~-":
            key, request = AgentSubmissionKey.parse(character * length), arena.request()
            assert (await arena.runs.submit(key, request)).outcome is COMMITTED
            assert (await arena.runs.load_by_key(arena.tenant, key)).provenance.run_id == request.run_id

    race(work)


def test_A9_a_key_is_its_tenants_and_its_bytes(race: Race) -> None:
    async def work(arena: Any) -> None:
        keys = [AgentSubmissionKey(each) for each in ("abcdefghijklmnop", "Abcdefghijklmnop", "abcdefghijklmnoP")]
        tenants = [arena.tenant, TenantId(arena.tenant.text.upper()), TenantId(f"{arena.tenant}x")]
        for tenant in tenants[1:]:
            await arena.runs.publish(tenant, arena.kit.graph)
        admitted = {
            (tenant, key): await arena.runs.submit(key, arena.request(tenant_id=tenant))
            for tenant in tenants
            for key in keys
        }
        assert [each.outcome for each in admitted.values()] == [COMMITTED] * 9
        assert len({each.snapshot.provenance.run_id for each in admitted.values()}) == 9
        for (tenant, key), each in admitted.items():
            assert await arena.runs.load_by_key(tenant, key) == each.snapshot

    race(work)


def test_P3_another_tenants_run_looks_like_one_that_never_existed(race: Race) -> None:
    async def work(arena: Any) -> None:
        key, request, other = fresh(), arena.request(), TenantId(f"{arena.tenant}-b")
        await arena.runs.publish(other, arena.kit.graph)

        async def said() -> list[str]:
            texts = []
            for load in (arena.runs.load(other, request.run_id), arena.runs.load_by_key(other, key)):
                with pytest.raises((RunNotFoundError, AgentSubmissionNotFoundError)) as missing:
                    await load
                texts.append(f"{missing.value!r} {missing.value}")
            return texts

        before = await said()
        await arena.runs.submit(key, request)
        assert await said() == before
        # The same ids are free there: they are another run.
        theirs = await arena.runs.submit(key, arena.request(tenant_id=other, ids=request.ids))
        assert theirs.outcome is COMMITTED
        assert (await arena.runs.load(other, request.run_id)).provenance.tenant_id == other
        assert (await arena.runs.load(arena.tenant, request.run_id)).provenance.tenant_id == arena.tenant

    race(work)


def test_SUB_16_a_lost_graph_fails_closed_in_a_callers_transaction_too(race: Race, joined: Any) -> None:
    async def work(arena: Any) -> None:
        key, first = fresh(), arena.request()
        await arena.runs.submit(key, first)
        async with AgentRunStore(arena.kit.url) as store, arena.joining(joined.level) as party:
            without = DurableAgentRuns(store, arena.kit.executables_of(graphs=()))
            for each, request in ((fresh(), arena.request()), (key, first), (key, arena.request())):
                with pytest.raises(ExecutableGraphUnavailableError) as missing:
                    await without.submit(each, request, session=party.connection)
                assert missing.value.reason == "not_installed"
            with pytest.raises(AgentSubmissionConflictError) as conflict:
                await without.submit(key, arena.request(input={"n": 2}), session=party.connection)
            assert conflict.value.run_id == first.run_id
            await party.write()
            await party.commit()
        assert (await arena.notes(), await arena.rows()) == (1, ONE_RUN)

    race(work)
