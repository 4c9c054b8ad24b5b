"""Submit a run, lose the answer, submit again, drive the run, and read the verified result."""

import asyncio
from datetime import timedelta

from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine

import agentruns.migrations

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
deployment = agentruns.Deployment(issuer="https://example.com/", subject="quickstart")
triage = deployment.add(agentruns.GraphBuilder("triage", "1.0.0", input=TEXT, state=TEXT, output={"type": "object"}))


@triage.node(entry=True, then="sort")
async def count(context: agentruns.GraphNodeContext) -> dict[str, int]:
    return {"words": len(context.state["text"].split())}  # committed before the next node starts


@triage.node(terminal=True)
async def sort(context: agentruns.GraphNodeContext) -> agentruns.Finish:
    return agentruns.Finish({"words": context.state["words"], "is_question": context.state["text"].endswith("?")})


async def main(server: agentruns.EmbeddedServer) -> None:
    async with create_async_engine(server.url, poolclass=NullPool).begin() as connection:
        await connection.run_sync(agentruns.migrations.upgrade)
    async with deployment.open(server.url, tenant="acme") as app, app.worker():
        key, request = agentruns.AgentSubmissionKey.generate(), app.request(triage, input={"text": "Where is my bag?"})
        await app.runs.submit(key, request)
        admitted = await app.runs.submit(key, request)  # whenever an answer is lost, the key finds the run again
        snapshot = await app.runs.wait(app.tenant, admitted.snapshot.provenance.run_id, timeout=timedelta(seconds=30))
        if isinstance(snapshot.outcome, agentruns.SucceededOutcome):
            print(admitted.outcome.value, snapshot.status.value, snapshot.outcome.result.output.value)


if __name__ == "__main__":
    with agentruns.EmbeddedServer() as server:
        asyncio.run(main(server))
