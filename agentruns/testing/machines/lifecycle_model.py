"""What a run's life is, in a few lines: statuses, waits, and the instants at which either may change."""

from __future__ import annotations

from attrs import define, evolve, field, frozen


@frozen(kw_only=True)
class ModelWait:
    """A wait that the model knows; instants are microseconds.

    Attributes:
        due: of a timer; ``None`` for an interrupt.
        expires: of an interrupt that does.
        needs: whether only a resolver with the right scope may answer.
    """

    due: int | None = None
    expires: int | None = None
    needs: bool = False

    def is_expired(self, now: int) -> bool:
        """Tell whether nobody may answer any more; equality is expired."""
        return self.expires is not None and now >= self.expires


@define(kw_only=True)
class LifecycleModel:
    """Keep the life of one run. Each method says how the call ends: ``done``, or the word for its refusal.

    Attributes:
        deadline: of the run, in microseconds.
        status: as snapshots name it.
        revision: the number of transitions, the admission among them.
        waits: the outstanding ones.
        settled: how each of the others ended.
        recent: those of them that the run's last wait was for.
    """

    deadline: int
    status: str = "active"
    revision: int = 1
    waits: dict[str, ModelWait] = field(factory=dict)
    settled: dict[str, str] = field(factory=dict)
    recent: set[str] = field(factory=set)

    @property
    def is_over(self) -> bool:
        """Whether nothing follows."""
        return self.status in ("succeeded", "failed", "cancelled")

    def copy(self) -> LifecycleModel:
        """Give a model to try something with."""
        return evolve(self, waits=dict(self.waits), settled=dict(self.settled), recent=set(self.recent))

    def work(self) -> str:
        """Execute a node."""
        if self.status != "active":
            return "status"
        self.recent = set()
        return "done"

    def wait(self, waits: dict[str, ModelWait]) -> str:
        """Suspend the run."""
        if self.status != "active":
            return "status"
        self.waits, self.recent = dict(waits), set(waits)
        return self._move("waiting")

    def resolve(self, wait: str, *, has_scope: bool, now: int) -> str:
        """Answer an interrupt."""
        if self.status != "waiting":
            return "status"
        found = self.waits.get(wait)
        if found is None or found.due is not None:
            return self._missing(wait)
        if found.is_expired(now):
            return "settled"
        if found.needs and not has_scope:
            return "resolver"
        return self._settle(wait, "resolved")

    def fire(self, wait: str, now: int) -> str:
        """Let a timer fire."""
        if self.status != "waiting":
            return "status"
        found = self.waits.get(wait)
        if found is None or found.due is None:
            return self._missing(wait)
        return self._settle(wait, "fired") if now >= found.due else "early"

    def expire(self, now: int) -> str:
        """End the run because nobody answered in time."""
        if self.status != "waiting":
            return "status"
        if not any(wait.is_expired(now) for wait in self.waits.values()):
            return "early"
        self._abandon()
        return self._move("failed")

    def request(self, now: int, *, by_deadline: bool) -> str:
        """Ask for the end of the run."""
        if self.status not in ("active", "waiting"):
            return "status"
        if by_deadline and now < self.deadline:
            return "early"
        self._abandon()
        return self._move("cancellation_requested")

    def confirm(self) -> str:
        """End the run as was asked."""
        return self._move("cancelled") if self.status == "cancellation_requested" else "status"

    def succeed(self) -> str:
        """End the run with its output."""
        return self._move("succeeded") if self.status == "active" else "status"

    def _missing(self, wait: str) -> str:
        return "settled" if wait in self.recent and wait in self.settled else "unknown"

    def _settle(self, wait: str, how: str) -> str:
        del self.waits[wait]
        self.settled[wait] = how
        return self._move("waiting" if self.waits else "active")

    def _abandon(self) -> None:
        self.settled |= dict.fromkeys(self.waits, "abandoned")
        self.waits = {}

    def _move(self, status: str) -> str:
        self.status = status
        self.revision += 1
        return "done"
