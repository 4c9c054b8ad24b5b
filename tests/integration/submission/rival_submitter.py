"""A process that submits when it is told to, beside others of its kind.

Run it as ``python rival_submitter.py URL CALLS``. Each line that it reads is a way and a key; it answers with one JSON
array of outcome and run id for each of its calls.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from agentruns.domain.graph.returns import Finish
from agentruns.domain.submission import AgentRunIds, DurableAgentAdmissionRequest
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.runtime.graph_bundle import GraphBundle
from agentruns.runtime.runs import DurableAgentRuns
from agentruns.runtime.store import AgentRunStore
from agentruns.testing import samples
from agentruns.testing.drives import TENANT, chain, executables_of

BUNDLE: Final[GraphBundle] = chain(a=lambda _context: None, b=lambda context: Finish(context.state))

Submit = Callable[[AgentSubmissionKey], Awaitable[Any]]


def request() -> DurableAgentAdmissionRequest:
    """Ask for a run with fresh ids and always the same content."""
    graph = BUNDLE.graph
    return samples.admission_request(
        ids=AgentRunIds.generate(),
        descriptor=samples.agent(input_schema=graph.input_schema, output_schema=graph.output_schema),
        request=samples.agent_request(input={}, input_schema=graph.input_schema),
        graph=graph.reference,
        initial_state=samples.graph_state({}, schema=graph.state_schema),
    )


async def serve(url: str, calls: int) -> None:
    """Answer until the input ends."""
    executables = executables_of(BUNDLE)
    engine = create_async_engine(url, pool_size=calls, max_overflow=0)
    async with AgentRunStore(url) as store:
        runs = DurableAgentRuns(store, executables)
        await runs.publish(TENANT, BUNDLE.graph)
        ways = {"coalesced": submitting(runs), "joined": joining(runs, engine)}
        print("ready", flush=True)  # noqa: T201
        while line := await asyncio.to_thread(sys.stdin.readline):
            way, key = line.split()
            answers = await asyncio.gather(*(ways[way](AgentSubmissionKey(key)) for _ in range(calls)))
            found = [(each.outcome.value, each.snapshot.provenance.run_id.text) for each in answers]
            print(json.dumps(found), flush=True)  # noqa: T201
    await engine.dispose()


def submitting(runs: DurableAgentRuns) -> Submit:
    """Submit in transactions of the library's own."""
    return lambda key: runs.submit(key, request())


def joining(runs: DurableAgentRuns, engine: AsyncEngine) -> Submit:
    """Submit in transactions of this process's own."""

    async def submit(key: AgentSubmissionKey) -> Any:
        async with engine.begin() as connection:
            return await runs.submit(key, request(), session=connection)

    return submit


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
