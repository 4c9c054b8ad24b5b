"""Watch a block with a span."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from agentruns.errors import AgentRunsError, CorruptDataError, InvariantError, RunQuarantinedError
from agentruns.runtime.telemetry.observation import Observation

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from agentruns.runtime.telemetry.recording import Recording, Value

T = TypeVar("T")

_FAULTS = (CorruptDataError, InvariantError, RunQuarantinedError)


class ObservedSpan(Observation):
    """A span from the block's beginning to its end, with ids, codes and counts and nothing else.

    Attributes:
        name: of the span.
        is_root: whether it begins a trace of its own.
        is_current: whether what the application records meanwhile is part of it.
    """

    __slots__ = ("_began", "_is_over", "_recording", "_span", "_token")

    name: ClassVar[str]
    is_root: ClassVar[bool] = False
    is_current: ClassVar[bool] = False

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._began = time.monotonic()
        self._is_over = False
        self._span: Any = None
        self._token: Any = None

    def __enter__(self) -> Self:
        with self._recording.passing_over():
            self._span = self._recording.start(
                self.name, self.beginning(), is_root=self.is_root, submitter=self.submitter()
            )
            if self.is_current:
                self._token = self._recording.enter(self._span)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            with self._recording.passing_over():
                self._recording.leave(self._token)
        if error is None:
            self.ended_with(None)
        elif not self._is_over:
            with self._recording.passing_over():
                self.failed(error)
            self._finish()

    def ended_with(self, value: T) -> T:
        """End the span with what the block came to; ``None`` is what an end without an answer comes to."""
        if not self._is_over:
            with self._recording.passing_over():
                self.answered(value)
            self._finish()
        return value

    def _finish(self) -> None:
        self._is_over = True
        if self._span is not None:
            with self._recording.passing_over():
                self._span.end()

    # --- what a kind of span says ------------------------------------------------------------------------------------

    def beginning(self) -> Mapping[str, Value]:
        """Give what is known when the span starts."""
        return {}

    def submitter(self) -> str | None:
        """Give the ``traceparent`` to link to, where it is known when the span starts."""
        return None

    def answered(self, value: Any) -> None:
        """Say what the block came to, in the span and in the counts."""

    def failed(self, error: BaseException) -> None:
        """Say what the block raised; only a fault is an error of the span's."""
        self.note(error=type(error).__name__)
        if is_fault(error):
            self.fail()

    # -----------------------------------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Give the time since the block began."""
        return time.monotonic() - self._began

    def note(self, **attributes: Value) -> None:
        """Add attributes to the span."""
        if self._span is not None:
            self._recording.note(self._span, attributes)

    def fail(self) -> None:
        """Say that the span went wrong."""
        if self._span is not None:
            self._recording.fail(self._span)


class LateSpan(Observation):
    """A span that is only told of when there was something to tell: what looks again and again mostly finds nothing."""

    __slots__ = ("_began", "_began_at", "_is_over", "_recording")

    name: ClassVar[str]

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._began = time.monotonic()
        self._began_at = time.time_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            with self._recording.passing_over():
                self.failed(error)

    def ended_with(self, value: T) -> T:
        """Count what the block came to, and tell of it where it was something."""
        with self._recording.passing_over():
            self.answered(value)
        return value

    def answered(self, value: Any) -> None:
        """Say what the block came to."""

    def failed(self, error: BaseException) -> None:
        """Say what the block raised."""

    @property
    def seconds(self) -> float:
        """Give the time since the block began."""
        return time.monotonic() - self._began

    def tell(self, **attributes: Value) -> None:
        """Make the span, from the block's beginning to now."""
        self._recording.start(self.name, attributes, is_root=True, start_time=self._began_at).end()


def is_fault(error: BaseException) -> bool:
    """Whether an error is corruption, a quarantine or a defect of ours, and not what happens to any run."""
    return isinstance(error, _FAULTS)


def is_unforeseen(error: BaseException) -> bool:
    """Whether an error is none of ours, and no end of the process or of its task."""
    return isinstance(error, Exception) and not isinstance(error, AgentRunsError)
