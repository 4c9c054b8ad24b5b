"""What changes while a node executes: its time, the wish that it end, and what the library's own calls met."""

from __future__ import annotations

import asyncio
import time


class NodeLife:
    """Carry what a driver does to an executing node; its context only reads it.

    The loop of the drive changes it, except that a node which runs in a thread begins there.

    Attributes:
        fault: what went wrong for the library, and not for the node: whatever the node makes of it, its attempt is not
            completed, and the drive ends with it.

    Args:
        seconds: that the node has, from when its function is called.
    """

    def __init__(self, seconds: float) -> None:
        self.is_revoked = False
        self.is_cancelled = False
        self.fault: Exception | None = None
        self._seconds = seconds
        self._deadline: float | None = None
        #: Made for the first who waits: most nodes never look.
        self._cancellation: asyncio.Event | None = None

    def begin(self) -> None:
        """Count the node's time from here: what it waited for a thread is not its own."""
        self._deadline = time.monotonic() + self._seconds

    @property
    def has_begun(self) -> bool:
        """Whether the node's function has been called."""
        return self._deadline is not None

    @property
    def time_left(self) -> float:
        """Seconds until the deadline, on the process's monotonic clock; all of them before the node has begun."""
        return self._seconds if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def revoke(self) -> None:
        """Close the node's context: nothing is read for the node any more."""
        self.is_revoked = True

    def signal(self) -> None:
        """Ask the node to end. Only the loop of the drive may; what runs in a thread sees it as well."""
        self.is_cancelled = True
        if self._cancellation is not None:
            self._cancellation.set()

    async def wait_cancelled(self) -> None:
        """Return once the node is asked to end."""
        if self.is_cancelled:
            return
        if self._cancellation is None:
            self._cancellation = asyncio.Event()
        await self._cancellation.wait()
