"""Let calls wait for the ends of runs: they look again and again, and at once when an end is told of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import URL

from agentruns.domain.ids import RunId
from agentruns.runtime.database import Database
from agentruns.runtime.listener import Listener, Subject
from agentruns.store.wake_ups import ends_channel_of, runs_of

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
#: The same where ends are heard of: what a lost notification costs at most.
_LONGEST_PAUSE_LISTENING: Final = 2.0
#: Seconds for which a connection is kept at which nobody waits: the next call that does often follows soon.
_KEPT: Final = 30.0


class EndedRuns:
    """Wake who waits for the end of a run, whichever process ends it.

    What this process ends is known here. To hear of the rest a connection of its own listens as long as anybody waits,
    and half a minute longer; all calls of the store that wait share it.

    Args:
        database: whose runs are waited for.
        url: of a direct connection; ``None`` for the database's own.
        listens: whether it listens at all.
    """

    def __init__(self, database: Database, url: str | URL | None, *, listens: bool) -> None:
        self._listens = listens
        subject = Subject(
            channel=ends_channel_of(database.options.schema),
            lost="ends of runs are not told of: who waits for one polls",
            regained="ends of runs are told of again",
            level=logging.INFO,
        )
        self._listener = Listener(database, url, subject=subject, heard=self._heard, wake=self._wake_all)
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._is_unneeded = asyncio.Event()
        self._leaving: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_listening(self) -> bool:
        """Whether it is told of the ends that other processes bring about."""
        return self._listener.is_listening

    @contextmanager
    def awaited(self, run_id: RunId) -> Iterator[AwaitedEnd]:
        """Wait for the end of a run within the block."""
        end = AwaitedEnd(self)
        events = self._waiting.setdefault(run_id.text, set())
        events.add(end.news)
        self._stay()
        try:
            yield end
        finally:
            events.discard(end.news)
            if not events:
                del self._waiting[run_id.text]
            self._leave()

    def told(self, run: str) -> None:
        """Wake who waits for a run, by its id."""
        for event in self._waiting.get(run, ()):
            event.set()

    def listen(self) -> None:
        """Begin to listen, unless somebody's waiting has begun it."""
        if self._listens and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._listen(), name="agentruns:ended-runs")

    async def close(self) -> None:
        """Listen no longer."""
        self._stay()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _listen(self) -> None:
        # Somebody may begin to wait while the connection is being closed.
        while self._waiting:
            self._is_unneeded.clear()
            async with self._listener:
                await self._is_unneeded.wait()

    def _stay(self) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def _leave(self) -> None:
        if not self._waiting and self._task is not None:
            self._stay()
            self._leaving = asyncio.get_running_loop().call_later(_KEPT, self._is_unneeded.set)

    def _heard(self, payload: str) -> None:
        for run in runs_of(payload):
            self.told(run)

    def _wake_all(self) -> None:
        for run in self._waiting:
            self.told(run)


class AwaitedEnd:
    """Pause between two looks at a run that somebody waits for.

    What is told after a look has begun ends the pause that follows it.

    Attributes:
        news: set when the run is told of.
    """

    def __init__(self, ended: EndedRuns) -> None:
        self._ended = ended
        self._pause = _FIRST_PAUSE
        self.news = asyncio.Event()

    def look(self) -> None:
        """Begin a look: what has been told so far is answered by it."""
        self.news.clear()

    async def pause(self, left: float) -> None:
        """Wait until the end may have come, and no longer than what is left, in seconds."""
        self._ended.listen()
        longest = _LONGEST_PAUSE_LISTENING if self._ended.is_listening else _LONGEST_PAUSE
        try:
            async with asyncio.timeout(min(self._pause, longest, left)):
                await self.news.wait()
        except TimeoutError:
            self._pause = min(2 * self._pause, longest)
