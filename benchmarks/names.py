"""What the cases are called, in tables and files, and the order in which they are shown."""

from __future__ import annotations

from typing import Final

SUBMIT: Final = "submit"
SUBMIT_FLOOR: Final = "floor: submit"
SUBMIT_SETS_FLOOR: Final = "floor: submit, in sets"
SUBMIT_SINGLE: Final = "submit, a statement each"
SUBMIT_MANY: Final = "submit_many of 64"
SUBMIT_ALONE: Final = "submit, alone"
ENQUEUE_THREADS: Final = "dbos: enqueue, threads"
ENQUEUE_ASYNC: Final = "dbos: enqueue, async"
ENQUEUE_ALONE: Final = "dbos: enqueue, alone"
DEFER: Final = "procrastinate: defer"
RETRY: Final = "retry of a known key"
AGAIN_THREADS: Final = "dbos: enqueue again, threads"
AGAIN_ASYNC: Final = "dbos: enqueue again, async"
AGAIN_READ_THREADS: Final = "dbos: enqueue again and status, threads"
AGAIN_READ_ASYNC: Final = "dbos: enqueue again and status, async"
LOAD: Final = "load"
LOAD_ELSEWHERE: Final = "load, first in a process"
LOAD_FLOOR: Final = "floor: load"
STATUS_THREADS: Final = "dbos: status, threads"
STATUS_ASYNC: Final = "dbos: status, async"
RUN: Final = "run of 3 nodes"
RUN_ALONE: Final = "run of 3 nodes, alone"
COMPLETE: Final = "run of 3 nodes, until durable"
READY: Final = "run of 3 nodes, from ready"
READY_MANY: Final = "run of 3 nodes, from ready, 4 x callers"
READY_FLOOR: Final = "floor: run of 3 nodes"
READY_SETS_FLOOR: Final = "floor: run of 3 nodes, in sets"
DRIVE: Final = "drive of 3 nodes"
DRIVE_ALONE: Final = "drive of 3 nodes, alone"
DBOS_RUN_THREADS: Final = "dbos: workflow of 3 steps, threads"
DBOS_RUN_ASYNC: Final = "dbos: workflow of 3 steps, async"
DBOS_RUN_ALONE: Final = "dbos: workflow of 3 steps, alone"
DBOS_QUEUE_THREADS: Final = "dbos: workflow of 3 steps, queue, threads"
DBOS_QUEUE_ASYNC: Final = "dbos: workflow of 3 steps, queue, async"
LANGGRAPH_SYNC: Final = "langgraph: 3 nodes, durability sync"
LANGGRAPH_ASYNC: Final = "langgraph: 3 nodes, durability async"
LANGGRAPH_ALONE: Final = "langgraph: 3 nodes, durability sync, alone"
FAN: Final = "run of 16 parallel nodes"
FAN_ALONE: Final = "run of 16 parallel nodes, alone"
LANGGRAPH_FAN: Final = "langgraph: 16 parallel nodes"
LANGGRAPH_FAN_ALONE: Final = "langgraph: 16 parallel nodes, alone"
SUPERSTEP_EARLY: Final = "superstep, short history"
SUPERSTEP_LATE: Final = "superstep, long history"
PROCESSES: Final = {number: f"queue of runs, {number} worker processes" for number in (1, 2, 4)}
CLAIMS_TOGETHER: Final = "claims, sixteen in a statement"
CLAIMS_ALONE: Final = "claims, a statement each"
ROTATION: Final = "runs of four tenants, in turn"
FAIR: Final = "runs of four tenants, by weights"

#: All of them, as a table shows them.
ORDER: Final = (
    SUBMIT_FLOOR, SUBMIT_SETS_FLOOR, ENQUEUE_THREADS, ENQUEUE_ASYNC, DEFER, SUBMIT, SUBMIT_SINGLE, SUBMIT_MANY,
    AGAIN_THREADS, AGAIN_ASYNC, AGAIN_READ_THREADS, AGAIN_READ_ASYNC, RETRY,
    LOAD_FLOOR, STATUS_THREADS, STATUS_ASYNC, LOAD, LOAD_ELSEWHERE,
    READY_FLOOR, READY_SETS_FLOOR, DBOS_RUN_THREADS, DBOS_RUN_ASYNC, DBOS_QUEUE_THREADS, DBOS_QUEUE_ASYNC,
    LANGGRAPH_SYNC, LANGGRAPH_ASYNC, RUN, COMPLETE, READY, READY_MANY, DRIVE, LANGGRAPH_FAN, FAN,
    ENQUEUE_ALONE, SUBMIT_ALONE, DBOS_RUN_ALONE, LANGGRAPH_ALONE, RUN_ALONE, DRIVE_ALONE,
    LANGGRAPH_FAN_ALONE, FAN_ALONE, SUPERSTEP_EARLY, SUPERSTEP_LATE, *PROCESSES.values(),
    CLAIMS_TOGETHER, CLAIMS_ALONE, ROTATION, FAIR,
)  # fmt: skip
#: Cases whose work is done by other processes.
ELSEWHERE: Final = tuple(PROCESSES.values())
#: Cases whose times of single calls say nothing.
WITHOUT_TIMES: Final = (
    RUN, COMPLETE, READY, READY_MANY, DRIVE, DBOS_QUEUE_THREADS, DBOS_QUEUE_ASYNC, *ELSEWHERE,
    CLAIMS_TOGETHER, CLAIMS_ALONE, ROTATION, FAIR,
)  # fmt: skip


def of_work(case: str) -> str:
    """Name a case's calls for each second that this process and the server computed together."""
    return f"{case}, of work"
