"""What is held against what: the median of the rounds, with their spread, and the bar where there is one."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from benchmarks import names
from benchmarks.counts import Count

_ENQUEUE: Final = (names.ENQUEUE_ASYNC, names.ENQUEUE_THREADS)
_AGAIN: Final = (names.AGAIN_ASYNC, names.AGAIN_THREADS)
_AGAIN_READ: Final = (names.AGAIN_READ_ASYNC, names.AGAIN_READ_THREADS)
_STATUS: Final = (names.STATUS_ASYNC, names.STATUS_THREADS)
_DBOS: Final = (names.DBOS_RUN_ASYNC, names.DBOS_RUN_THREADS)
_DBOS_QUEUE: Final = (names.DBOS_QUEUE_ASYNC, names.DBOS_QUEUE_THREADS)
_DBOS_WORK: Final = tuple(map(names.of_work, _DBOS))
_LANGGRAPH_WORK: Final = (names.of_work(names.LANGGRAPH_SYNC),)

#: Name, case, the cases of which the fastest of the round is held against it, and the bar.
_COMPARED: Final[tuple[tuple[str, str, tuple[str, ...], float | None], ...]] = (
    ("submit / floor", names.SUBMIT, (names.SUBMIT_FLOOR,), 0.5),
    ("submit / floor in sets", names.SUBMIT, (names.SUBMIT_SETS_FLOOR,), None),
    ("submit / a statement each", names.SUBMIT, (names.SUBMIT_SINGLE,), None),
    ("submit_many / submit", names.SUBMIT_MANY, (names.SUBMIT,), None),
    ("submit_many / submit, alone", names.SUBMIT_MANY, (names.SUBMIT_ALONE,), 2.0),
    ("submit / dbos enqueue", names.SUBMIT, _ENQUEUE, 1.5),
    ("submit / procrastinate defer", names.SUBMIT, (names.DEFER,), 1.2),
    ("retry / dbos enqueue again and status", names.RETRY, _AGAIN_READ, 3.0),
    ("retry / dbos enqueue again", names.RETRY, _AGAIN, None),
    ("load / floor", names.LOAD, (names.LOAD_FLOOR,), None),
    ("load / dbos status", names.LOAD, _STATUS, 5.0),
    ("load, first in a process / dbos status", names.LOAD_ELSEWHERE, _STATUS, None),
    ("run of 3 nodes, until durable / dbos", names.COMPLETE, _DBOS, 1.5),
    ("run of 3 nodes, until durable / langgraph sync", names.COMPLETE, (names.LANGGRAPH_SYNC,), 1.5),
    ("run of 3 nodes, until durable / langgraph async", names.COMPLETE, (names.LANGGRAPH_ASYNC,), None),
    ("run of 3 nodes, from ready / dbos", names.READY, _DBOS, 5.0),
    ("run of 3 nodes, from ready / dbos queue", names.READY, _DBOS_QUEUE, 10.0),
    ("run of 3 nodes, from ready / langgraph sync", names.READY, (names.LANGGRAPH_SYNC,), 4.0),
    ("run of 3 nodes, from ready / floor", names.READY, (names.READY_FLOOR,), 0.8),
    ("run of 3 nodes, from ready / floor in sets", names.READY, (names.READY_SETS_FLOOR,), None),
    ("run of 3 nodes, from ready, 4 x callers", names.READY_MANY, (names.READY,), 1.0),
    ("run of 3 nodes / dbos", names.RUN, _DBOS, None),
    ("run of 3 nodes / dbos queue", names.RUN, _DBOS_QUEUE, None),
    ("run of 3 nodes / langgraph sync", names.RUN, (names.LANGGRAPH_SYNC,), None),
    ("drive of 3 nodes / dbos", names.DRIVE, _DBOS, None),
    ("drive of 3 nodes / langgraph sync", names.DRIVE, (names.LANGGRAPH_SYNC,), None),
    ("run of 3 nodes, until durable / dbos, of work", names.of_work(names.COMPLETE), _DBOS_WORK, None),
    ("run of 3 nodes, until durable / langgraph sync, of work", names.of_work(names.COMPLETE), _LANGGRAPH_WORK, None),
    ("drive of 3 nodes / dbos, of work", names.of_work(names.DRIVE), _DBOS_WORK, None),
    ("drive of 3 nodes / langgraph sync, of work", names.of_work(names.DRIVE), _LANGGRAPH_WORK, None),
    ("run of 16 parallel nodes / langgraph", names.FAN, (names.LANGGRAPH_FAN,), 4.0),
    ("run of 16 parallel nodes / langgraph, alone", names.FAN_ALONE, (names.LANGGRAPH_FAN_ALONE,), None),
    ("superstep, long history / short history", names.SUPERSTEP_LATE, (names.SUPERSTEP_EARLY,), round(1 / 1.2, 3)),
    ("2 worker processes / 1", names.PROCESSES[2], (names.PROCESSES[1],), None),
    ("4 worker processes / 1", names.PROCESSES[4], (names.PROCESSES[1],), None),
    ("claims, sixteen in a statement / a statement each", names.CLAIMS_TOGETHER, (names.CLAIMS_ALONE,), 3.0),
    ("tenants by weights / in turn", names.FAIR, (names.ROTATION,), 0.9),
)

#: Name, case and the transactions that one call of it may commit at most.
_CEILINGS: Final = (("transactions of a drive of 3 nodes, alone", names.DRIVE_ALONE, 6.0),)


@frozen(kw_only=True)
class Ratio:
    """One rate as a share of another, taken within each round.

    Attributes:
        median: of the rounds.
        lowest: of the rounds; ``highest`` likewise.
        bar: what the median must reach.
    """

    median: float
    lowest: float
    highest: float
    bar: float | None

    @property
    def is_above_bar(self) -> bool:
        """Whether the median reaches its bar."""
        return self.bar is None or self.median >= self.bar


@frozen(kw_only=True)
class Ceiling:
    """What one call costs the server, and what it may cost at most."""

    commits: float
    most: float

    @property
    def is_kept(self) -> bool:
        """Whether it costs no more."""
        return self.commits <= self.most


def ceilings(counts: Mapping[str, Count]) -> dict[str, Ceiling]:
    """Hold what was counted against what it may be; cases that were left out are held against nothing."""
    return {name: Ceiling(commits=counts[case].commits, most=most) for name, case, most in _CEILINGS if case in counts}


def ratios(rates: Mapping[str, Sequence[float]]) -> dict[str, Ratio]:
    """Compare what was measured, round by round; cases that were left out are compared with nothing."""
    return {
        name: Ratio(median=statistics.median(found), lowest=min(found), highest=max(found), bar=bar)
        for name, ours, others, bar in _COMPARED
        if ours in rates and (found := list(_shares(rates, ours, others)))
    }


def _shares(rates: Mapping[str, Sequence[float]], ours: str, others: Sequence[str]) -> Iterator[float]:
    measured = [rates[name] for name in others if name in rates]
    for rate, *rivals in zip(rates[ours], *measured, strict=True):
        if rivals:
            yield rate / max(rivals)
