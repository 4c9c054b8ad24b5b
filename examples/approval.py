"""Let a run ask for an approval, sleep without a worker, and go on with the answer."""

import asyncio
from datetime import timedelta

from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine

import agentruns
import agentruns.migrations

ANY = {"type": "object"}
deployment = agentruns.Deployment(issuer="https://example.com/", subject="back-office")
question = deployment.add_schema({"type": "object", "required": ["text"]}, name="question")
answer = deployment.add_schema({"type": "object", "required": ["approved"]}, name="answer")
refund = deployment.add(agentruns.GraphBuilder("refund", "1.0.0", input=ANY, state=ANY, output=ANY))


@refund.node(entry=True, wait_to="pay")
async def ask(context: agentruns.GraphNodeContext) -> agentruns.Suspend:
    asked = agentruns.JournalPayload.of(question, "question", {"text": f"Refund {context.state['cents']} cents?"})
    return agentruns.Suspend(
        agentruns.NodeWait.interrupt(
            "approval", request=asked, scopes=["refunds.approve"], expires_in=timedelta(days=2)
        )
    )


@refund.node(terminal=True)
async def pay(context: agentruns.GraphNodeContext) -> agentruns.Finish:
    (approval,) = await context.resolutions()
    is_paid = approval.resolution is not None and approval.resolution.payload.data.value == {"approved": True}
    return agentruns.Finish({"paid": context.state["cents"] if is_paid else 0})


async def main(server: agentruns.EmbeddedServer) -> None:
    async with create_async_engine(server.url, poolclass=NullPool).begin() as connection:
        await connection.run_sync(agentruns.migrations.upgrade)
    async with deployment.open(server.url, tenant="acme") as app, app.worker():
        key = agentruns.AgentSubmissionKey.generate()
        admitted = await app.runs.submit(key, app.request(refund, input={"cents": 500}))
        run_id = admitted.snapshot.provenance.run_id
        while not (waits := await app.waits.outstanding(app.tenant, run_id)):  # noqa: ASYNC110 - it happens elsewhere
            await asyncio.sleep(0.05)
        resolver = agentruns.WaitResolver.of(deployment.owner, scopes=["refunds.approve"])
        await app.waits.resolve_interrupt(
            app.tenant,
            run_id,
            waits[0].wait_id,
            event_id=agentruns.EventId.generate(),  # keep it with the answer, for a retry
            resolution=agentruns.JournalPayload.of(answer, "answer", {"approved": True}),
            resolver=resolver,
        )
        snapshot = await app.runs.wait(app.tenant, run_id, timeout=timedelta(seconds=30))
        if isinstance(snapshot.outcome, agentruns.SucceededOutcome):
            print(snapshot.status.value, snapshot.outcome.result.output.value)


if __name__ == "__main__":
    with agentruns.EmbeddedServer() as server:
        asyncio.run(main(server))
