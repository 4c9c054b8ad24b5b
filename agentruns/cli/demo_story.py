"""The demo, step by step: a lost answer, a killed worker, and what the record says in the end."""

from __future__ import annotations

import asyncio
import secrets
import signal
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Final

from sqlalchemy import URL

from agentruns.cli.demo_agent import DemoAgent, input_of, triage_agent
from agentruns.cli.demo_process import WorkerProcess
from agentruns.cli.demo_report import AttemptLine, DemoReport, attempts_of
from agentruns.cli.demo_worker import LEASE
from agentruns.cli.output import Output
from agentruns.domain.ids import RunId
from agentruns.domain.submission import MutationOutcome
from agentruns.domain.submission_key import AgentSubmissionKey
from agentruns.errors import InvariantError
from agentruns.runtime.deployment_open import OpenDeployment
from agentruns.store.options import StoreOptions

#: The node in which the first worker dies, and its sibling, which is committed before that.
_HELD: Final = "outline"
_SIBLING: Final = "keywords"

_PATIENCE: Final = timedelta(seconds=90)
_PAUSE: Final = 0.05


async def play(url: URL, text: str, *, schema: str, output: Output) -> DemoReport:
    """Play the whole story for one text, in a tenant of its own, and hand back what it came to.

    Raises:
        InvariantError: a worker ended by itself, or a step took longer than anybody should wait.
        AgentRunsError: whatever the library raises.
    """
    agent, tenant = triage_agent(), f"demo-{secrets.token_hex(6)}"
    options = StoreOptions(schema=schema, pool_size=4)
    try:
        async with (
            asyncio.timeout(_PATIENCE.total_seconds()),
            agent.deployment.open(url, tenant=tenant, options=options) as app,
        ):
            return await _Story(app, agent, url=url, output=output).play(text)
    except TimeoutError as error:
        raise InvariantError(reason="demo_timed_out") from error


class _Story:
    def __init__(self, app: OpenDeployment, agent: DemoAgent, *, url: URL, output: Output) -> None:
        self._app = app
        self._agent = agent
        self._url = url
        self._say = output.say
        self._key = AgentSubmissionKey.generate()

    async def play(self, text: str) -> DemoReport:
        run_id, first = await self._submit(text)
        self._say(f"1. Submitted run {run_id} of tenant {self._app.tenant}: {first.value}. The answer is thrown away.")
        resolved, second = await self._submit(text)
        self._say(f"2. Submitted again, the same key and fresh ids: {second.value}, it is run {resolved}.")
        await self._die(resolved)
        await self._take_over(resolved)
        return await self._read(run_id, (first, second))

    async def _submit(self, text: str) -> tuple[RunId, MutationOutcome]:
        """Submit as a client does that knows nothing but its key and its work; every time with fresh ids."""
        request = self._app.request(self._agent.graph, input=input_of(text))
        admitted = await self._app.runs.submit(self._key, request)
        return admitted.snapshot.provenance.run_id, admitted.outcome

    async def _die(self, run_id: RunId) -> None:
        async with self._worker(held=_HELD) as worker:
            self._say(f"3. Worker process {worker.pid} starts. Its lease lasts {LEASE.total_seconds():g} s.")
            attempt = await worker.entered(_HELD)
            await self._committed(run_id, _SIBLING)
            self._say(f"   It is inside {_HELD}, attempt {attempt}; its sibling {_SIBLING} is committed.")
            if await worker.kill() != -signal.SIGKILL:
                raise InvariantError(reason="demo_worker_ended")
            self._say(f"   Process {worker.pid} was killed with SIGKILL.")

    async def _committed(self, run_id: RunId, node: str) -> None:
        """Wait until another process has committed the result of a node."""
        while not any(each["node"] == node and each["state"] == "succeeded" for each in await self._attempts(run_id)):  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE)

    async def _take_over(self, run_id: RunId) -> None:
        async with self._worker() as worker:
            self._say(f"4. Worker process {worker.pid} starts, and waits until the lease of the dead one has expired.")
            attempt = await worker.entered(_HELD)
            self._say(f"   It is inside {_HELD}, attempt {attempt}.")
            await self._app.runs.wait(self._app.tenant, run_id, timeout=_PATIENCE)
            await worker.finish()

    async def _read(self, run_id: RunId, outcomes: tuple[MutationOutcome, ...]) -> DemoReport:
        snapshot = await self._app.runs.load_by_key(self._app.tenant, self._key)
        resolved = snapshot.provenance.run_id
        self._say(f"5. Loaded by the key: run {resolved} is {snapshot.status.value}, at revision {snapshot.revision}.")
        replayed = await self._app.reader.read(self._app.tenant, resolved)
        report = DemoReport(
            run_id=run_id,
            outcomes=outcomes,
            snapshot=snapshot,
            attempts=await self._attempts(resolved),
            replayed=replayed,
        )
        self._say(f"6. Folded its journal anew: {report.journal_events} events, each linked to the one before.")
        return report

    def _worker(self, *, held: str | None = None) -> AbstractAsyncContextManager[WorkerProcess]:
        schema = self._app.store.options.schema
        return WorkerProcess.started(self._url, tenant=str(self._app.tenant), schema=schema, held=held)

    async def _attempts(self, run_id: RunId) -> list[AttemptLine]:
        return await self._app.store.run(lambda work: attempts_of(work, self._app.tenant, run_id))
