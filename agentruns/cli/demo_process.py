"""The demo's hold on a worker process: it hears which node the worker is in, and it can kill it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self

from sqlalchemy import URL

from agentruns.cli.options import DATABASE_URL_VARIABLE
from agentruns.errors import InvariantError


class WorkerProcess:
    """Follow one worker. Made by :meth:`started`, whose block the process does not outlive."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    @asynccontextmanager
    async def started(cls, url: URL, *, tenant: str, schema: str, held: str | None = None) -> AsyncIterator[Self]:
        """Start a worker for a tenant's runs.

        Args:
            url: of the database; it is passed in the environment, which only this account can read.
            tenant: whose runs it drives.
            schema: the database schema.
            held: the node that goes no further in its first attempt.
        """
        # -P: the package that runs here, not a folder of that name where the command was called
        command = [sys.executable, "-P", "-m", "agentruns.cli.demo_worker", tenant, schema, *([held] if held else [])]
        environment = {**os.environ, DATABASE_URL_VARIABLE: url.render_as_string(hide_password=False)}
        # In a session of its own, so that an interrupt from the terminal reaches the demo alone, which ends it.
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        worker = cls(process)
        try:
            yield worker
        finally:
            await worker.kill()

    async def entered(self, node: str) -> int:
        """Wait until the worker is inside a node, and give the number of its attempt.

        Raises:
            InvariantError: the worker ended before; it has said why on standard error.
        """
        output = self._process.stdout
        while output is not None and (line := await output.readline()):
            name, _, attempt = line.decode("ascii").strip().partition(" ")
            if name == node:
                return int(attempt)
        raise InvariantError(reason="demo_worker_ended")

    async def kill(self) -> int:
        """Kill it with SIGKILL unless it has ended, and give its exit status; a negative one names a signal."""
        with suppress(ProcessLookupError):
            self._process.kill()
        return await self._process.wait()

    async def finish(self) -> int:
        """Let it stop by itself, which the end of its standard input tells it to, and give its exit status."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        return await self._process.wait()
