"""What is held against what: the median of the rounds, with their spread, and the bar where there is one."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from benchmarks.cases import (
    CLAIMS_ALONE,
    CLAIMS_TOGETHER,
    COMPLETE,
    DBOS_RUN_ASYNC,
    DBOS_RUN_THREADS,
    DRIVE,
    DRIVE_ALONE,
    ENQUEUE_ASYNC,
    ENQUEUE_THREADS,
    FAIR,
    LANGGRAPH_ASYNC,
    LANGGRAPH_SYNC,
    LOAD,
    LOAD_ELSEWHERE,
    LOAD_FLOOR,
    PROCESSES,
    ROTATION,
    STATUS_ASYNC,
    STATUS_THREADS,
    SUBMIT,
    SUBMIT_ALONE,
    SUBMIT_FLOOR,
    SUBMIT_MANY,
    SUBMIT_SETS_FLOOR,
    SUBMIT_SINGLE,
    SUPERSTEP_EARLY,
    SUPERSTEP_LATE,
    of_work,
)
from benchmarks.counts import Count

_ENQUEUE: Final = (ENQUEUE_ASYNC, ENQUEUE_THREADS)
_STATUS: Final = (STATUS_ASYNC, STATUS_THREADS)
_DBOS_RUNS: Final = (DBOS_RUN_ASYNC, DBOS_RUN_THREADS)
_DBOS_WORK: Final = tuple(map(of_work, _DBOS_RUNS))

#: Name, case, the cases of which the fastest of the round is held against it, and the bar.
_COMPARED: Final[tuple[tuple[str, str, tuple[str, ...], float | None], ...]] = (
    ("submit / floor", SUBMIT, (SUBMIT_FLOOR,), 0.25),
    ("submit / floor in sets", SUBMIT, (SUBMIT_SETS_FLOOR,), None),
    ("load / floor", LOAD, (LOAD_FLOOR,), None),
    ("submit / a statement each", SUBMIT, (SUBMIT_SINGLE,), None),
    ("submit_many / submit", SUBMIT_MANY, (SUBMIT,), None),
    ("submit_many / submit, alone", SUBMIT_MANY, (SUBMIT_ALONE,), 2.0),
    ("submit / dbos enqueue", SUBMIT, _ENQUEUE, 0.8),
    ("load / dbos status", LOAD, _STATUS, 1.0),
    ("load, first in a process / dbos status", LOAD_ELSEWHERE, _STATUS, None),
    ("run of 3 nodes, until durable / dbos", COMPLETE, _DBOS_RUNS, 1.5),
    ("run of 3 nodes, until durable / langgraph sync", COMPLETE, (LANGGRAPH_SYNC,), 1.5),
    ("run of 3 nodes, until durable / langgraph async", COMPLETE, (LANGGRAPH_ASYNC,), None),
    ("drive of 3 nodes / dbos", DRIVE, _DBOS_RUNS, None),
    ("drive of 3 nodes / langgraph sync", DRIVE, (LANGGRAPH_SYNC,), None),
    ("run of 3 nodes, until durable / dbos, of work", of_work(COMPLETE), _DBOS_WORK, None),
    ("run of 3 nodes, until durable / langgraph sync, of work", of_work(COMPLETE), (of_work(LANGGRAPH_SYNC),), None),
    ("drive of 3 nodes / dbos, of work", of_work(DRIVE), _DBOS_WORK, None),
    ("drive of 3 nodes / langgraph sync, of work", of_work(DRIVE), (of_work(LANGGRAPH_SYNC),), None),
    ("superstep, long history / short history", SUPERSTEP_LATE, (SUPERSTEP_EARLY,), round(1 / 1.2, 3)),
    ("2 worker processes / 1", PROCESSES[2], (PROCESSES[1],), None),
    ("4 worker processes / 1", PROCESSES[4], (PROCESSES[1],), None),
    ("claims, sixteen in a statement / a statement each", CLAIMS_TOGETHER, (CLAIMS_ALONE,), 3.0),
    ("tenants by weights / in turn", FAIR, (ROTATION,), 0.9),
)

#: Name, case and the transactions that one call of it may commit at most.
_CEILINGS: Final = (("transactions of a drive of 3 nodes, alone", DRIVE_ALONE, 6.0),)


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
