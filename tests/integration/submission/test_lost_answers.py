"""A wire that breaks before or after the server has acted: the same key converges to one run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import define, field
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import CommitOutcomeUnknownError
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.store.options import StoreOptions

Run = Callable[[Coroutine[Any, Any, Any]], Any]

COMMITTED, IDEMPOTENT = MutationOutcome.COMMITTED, MutationOutcome.IDEMPOTENT
ONE_RUN = {"agent_admissions": 1, "agent_submission_keys": 1, "run_checkpoints": 1, "run_events": 1, "runs": 1}
#: Messages to the server that begin so carry the parameters of a statement, and its execution.
BIND, COMMIT = b"B", b"COMMIT"
#: Smaller ones are no insert of an admission.
INSERT_BYTES = 1_000


@define
class Wire:
    """Stand between a client and the server, and break when told to.

    Attributes:
        cuts: how many executions to cut from now on.
        reaches_server: whether the server still gets what is cut, so that only its answer is lost.
        mark: what a message holds that is cut.
    """

    socket: str
    cuts: int = 0
    reaches_server: bool = True
    mark: bytes = BIND
    seen: int = 0
    tasks: set[asyncio.Task[None]] = field(factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self.socket)
        answers = asyncio.create_task(self._carry(from_server, writer))
        self.tasks.add(answers)
        while data := await reader.read(1 << 20):
            if self.cuts and self._is_marked(data):
                self.cuts -= 1
                self.seen += 1
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
                if self.reaches_server:
                    to_server.write(data)
                    await to_server.drain()
                    await from_server.read(1)
                break
            to_server.write(data)
            await to_server.drain()
        for each in (writer, to_server):
            each.transport.abort()

    def _is_marked(self, data: bytes) -> bool:
        return data.startswith(BIND) and len(data) > INSERT_BYTES if self.mark == BIND else self.mark in data

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[tuple[Wire, str]]:
    """Give a wire to the server and the URL at its other end."""
    target = make_url(url)
    wire = Wire(f"{target.query['host']}/.s.PGSQL.{target.query['port']}")
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    through = target.set(host="127.0.0.1", port=port, query={})
    yield wire, through.render_as_string(hide_password=False)
    server.close()
    for task in wire.tasks:
        task.cancel()
    await asyncio.gather(*wire.tasks, return_exceptions=True)


@pytest.mark.direct("it cuts the wire at messages of kept statements")
@pytest.mark.parametrize("reaches_server", [True, False])
def test_A5_a_submit_whose_answer_or_request_is_lost_is_sent_again(kit: Any, run: Run, *, reaches_server: bool) -> None:
    async def work() -> None:
        async with wired(kit.url) as (wire, url), AgentRunStore(url) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            await runs.submit(AgentSubmissionKey.generate(), kit.request())
            key, request = AgentSubmissionKey.generate(), kit.request()
            wire.cuts, wire.reaches_server = 1, reaches_server
            admitted = await runs.submit(key, request)
            assert wire.seen == 1
            assert admitted.outcome is (IDEMPOTENT if reaches_server else COMMITTED)
            assert admitted.snapshot.provenance.run_id == request.run_id
            again = await runs.submit(key, kit.request())
            assert (again.outcome, again.snapshot) == (IDEMPOTENT, admitted.snapshot)

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 2)


@pytest.mark.direct("it cuts the wire at messages of kept statements")
def test_A5_when_all_answers_are_lost_the_same_key_finds_the_run_even_after_the_deadline(kit: Any, run: Run) -> None:
    async def work() -> None:
        options = StoreOptions(attempts=2)
        async with wired(kit.url) as (wire, url), AgentRunStore(url, options) as store:
            runs = DurableAgentRuns(store, kit.executables)
            await runs.publish(kit.request().tenant_id, kit.graph)
            deadline = store.clock.stamp().plus_micros(4_000_000)
            key, request = AgentSubmissionKey.generate(), kit.request(deadline=deadline)
            await runs.submit(AgentSubmissionKey.generate(), kit.request())
            wire.cuts = 2
            with pytest.raises(CommitOutcomeUnknownError) as doubt:
                await runs.submit(key, request)
            assert (doubt.value.attempts, doubt.value.retryable, wire.seen) == (2, True, 2)
            await asyncio.sleep(4.1)
            assert store.clock.stamp() > deadline
            again = await runs.submit(key, kit.request(deadline=deadline))
            assert (again.outcome, again.snapshot.provenance.run_id) == (IDEMPOTENT, request.run_id)

    run(work())
    assert run(kit.rows()) == dict.fromkeys(ONE_RUN, 2)


@pytest.mark.parametrize("reaches_server", [True, False])
def test_SUB_11_a_joined_commit_that_is_lost_converges(kit: Any, run: Run, *, reaches_server: bool) -> None:
    async def work() -> None:
        async with kit.runs() as runs, wired(kit.url) as (wire, url):
            key, request = AgentSubmissionKey.generate(), kit.request()
            engine = create_async_engine(url, poolclass=NullPool)
            async with engine.connect() as connection:
                transaction = await connection.begin()
                assert (await runs.submit(key, request, session=connection)).outcome is COMMITTED
                wire.mark, wire.cuts, wire.reaches_server = COMMIT, 1, reaches_server
                with pytest.raises(DBAPIError):
                    await transaction.commit()
            again = await runs.submit(key, kit.request())
            assert again.outcome is (IDEMPOTENT if reaches_server else COMMITTED)
            assert (again.snapshot.provenance.run_id == request.run_id) is reaches_server
            await engine.dispose()

    run(work())
    assert run(kit.rows()) == ONE_RUN
