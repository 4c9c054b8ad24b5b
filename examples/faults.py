"""Lose answers on purpose, and hold what is left in the database against every law: a test of your own application."""

import asyncio
from datetime import timedelta

from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine

import agentruns.migrations
from agentruns.testing import invariants
from agentruns.testing.faults import WireProxy

ANY = {"type": "object"}
deployment = agentruns.Deployment(issuer="https://example.com/", subject="faults")
hello = deployment.add(agentruns.GraphBuilder("hello", "1.0.0", input=ANY, state=ANY, output=ANY))


@hello.node(entry=True, terminal=True)
async def greet(_context: agentruns.GraphNodeContext) -> agentruns.Finish:
    return agentruns.Finish({"greeting": "hello"})


async def main(server: agentruns.EmbeddedServer) -> None:
    engine = create_async_engine(server.url, poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(agentruns.migrations.upgrade)
    async with WireProxy.before(server.url) as proxy, deployment.open(proxy.url, tenant="acme") as app, app.worker():
        proxy.lose_answer(b"agent-admitted")  # the admission commits, and nobody is told
        proxy.lose_answer(b"graph-barrier-succeeded")  # and so does the run's end
        key = agentruns.AgentSubmissionKey.generate()
        admitted = await app.runs.submit(key, app.request(hello, input={}))
        snapshot = await app.runs.wait(app.tenant, admitted.snapshot.provenance.run_id, timeout=timedelta(seconds=60))
    async with engine.connect() as connection:
        for check in invariants.ASSERTIONS:
            await check(connection)
    print(admitted.outcome.value, snapshot.status.value, f"{len(invariants.ASSERTIONS)} laws hold")


if __name__ == "__main__":
    with agentruns.EmbeddedServer() as server:
        asyncio.run(main(server))
