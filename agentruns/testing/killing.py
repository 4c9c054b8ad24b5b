"""Processes that die at a chosen place of their work, killed by a test or by themselves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from attrs import define, field
from sqlalchemy import Engine, event

#: Every statement that commits facts of a run has it, whatever the schema is called.
_APPENDS: Final = re.compile(r"INSERT INTO \S+\.run_events\b")


@define(eq=False)
class DoomedProcess:
    """A process of a test's own that dies when the test says so, as a process dies on a machine that fails.

    Attributes:
        pid: of the process.
    """

    _process: subprocess.Popen[bytes]

    @classmethod
    @contextmanager
    def running(cls, arguments: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Iterator[Self]:
        """Start a process, and see to it that it is gone when the block ends.

        Args:
            arguments: its command line, such as ``[sys.executable, "worker.py", url]``.
            environment: instead of this process's.
        """
        doomed = cls(subprocess.Popen(list(arguments), env=None if environment is None else dict(environment)))  # noqa: S603 - the test's own
        try:
            yield doomed
        finally:
            doomed._process.kill()
            doomed._process.wait()

    @property
    def pid(self) -> int:  # noqa: D102
        return self._process.pid

    def kill(self, *, patience: float = 10.0) -> None:
        """End it by SIGKILL: nothing of it is cleaned up, no lease is given back, no answer is read.

        Raises:
            AssertionError: it had ended before, by itself.
            TimeoutExpired: it is still there after so many seconds.
        """
        self._process.send_signal(signal.SIGKILL)
        status = self._process.wait(patience)
        if status != -signal.SIGKILL:
            raise AssertionError(f"the process had ended before it was killed, with status {status}")


@define
class DeathAt:
    """End this process by SIGKILL when it passes a place for the n-th time.

    Places have names. ``before`` and ``after`` are passed by themselves once :meth:`listen` was called: by each
    statement of this process that commits facts of a run, when it is about to be sent, and when its answer is here and
    nothing of it was acted on. Any other place is passed by code that calls :meth:`passes`, such as a node.

    Attributes:
        place: where; an empty one is never passed, and the process lives.
        time: the how manieth time it is.
    """

    place: str = ""
    time: int = 1
    _passed: Counter[str] = field(factory=Counter, init=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``PLACE N``, as a command line gives it; an empty text is no death."""
        place, _, time = text.partition(" ")
        return cls(place, int(time or 1))

    def listen(self) -> None:
        """Pass by ``before`` and ``after`` from now on, in whatever engine of this process."""
        for moment in ("before", "after"):
            event.listen(Engine, f"{moment}_cursor_execute", self._listener(moment))

    def passes(self, place: str) -> None:
        """Pass by a place, and die there if this is the time."""
        self._passed[place] += 1
        if self.place == place and self._passed[place] == self.time:
            os.kill(os.getpid(), signal.SIGKILL)

    def _listener(self, moment: str) -> Callable[..., None]:
        def listen(*arguments: Any) -> None:
            _connection, _cursor, statement, *_rest = arguments
            if _APPENDS.search(statement):
                self.passes(moment)

        return listen
