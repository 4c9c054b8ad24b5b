"""The laws of an audit in the order in which they rest on each other: bytes, rows, histories, the run row, the fold."""

from __future__ import annotations

from typing import Final

from agentruns.operations.audit.law import Law, WholeLaw
from agentruns.operations.audit.laws import (
    attempts,
    beside,
    chain,
    definitions,
    leases,
    ledger,
    lifecycle,
    rows,
    scheduling,
    schema,
    submission,
)
from agentruns.operations.audit.laws.folding import FoldLaw
from agentruns.runtime.registry import ExecutableGraphRegistry

#: What the bytes of a run say, before anything is made of them.
_BYTES: Final[tuple[Law, ...]] = (
    ledger.NO_STRAYS,
    submission.ADMISSIONS_ARE_WHOLE,
    ledger.SEQUENCES_ARE_CONTIGUOUS,
    chain.EVENTS_ARE_CHAINED,
    chain.EVENTS_SATISFY_THEIR_DOCUMENTS,
    ledger.BODIES_HASH_TO_THEIR_DIGESTS,
)
#: Rows against events, and events against each other.
_HISTORIES: Final[tuple[Law, ...]] = (
    *rows.EVERY_EVENT_HAS_ITS_ROWS,
    lifecycle.WAITS_ARE_SETTLED_BY_THEIR_EVENTS,
    lifecycle.WAITS_ARE_SETTLED_IN_TIME,
    ledger.TIME_NEVER_FALLS,
    ledger.EPOCHS_NEVER_FALL,
    lifecycle.NOTHING_FOLLOWS_AN_END,
    lifecycle.A_REQUEST_IS_NOT_OVERTAKEN,
    lifecycle.ONE_REQUEST_TO_CANCEL,
    attempts.STARTS_ARE_NUMBERED,
    attempts.ONE_COMPLETION_PER_ATTEMPT,
    attempts.ONE_SUCCESS_PER_ACTIVATION,
    attempts.COMPLETIONS_HAVE_THE_EPOCH_OF_THEIR_STARTS,
    attempts.AN_OPEN_START_IS_TAKEN_OVER_BY_A_HIGHER_EPOCH,
    attempts.A_RETRY_WAITS_FOR_ITS_GATE,
)
#: The run row, and what stands beside the journal.
_PLACES: Final[tuple[Law, ...]] = (
    ledger.RUN_ROWS_STAND_AT_THEIR_HEADS,
    lifecycle.STATUS_FOLLOWS_FROM_THE_LAST_TRANSITION,
    ledger.REVISIONS_COUNT_TRANSITIONS,
    lifecycle.WAITING_RUNS_HAVE_WAITS,
    lifecycle.ENDED_RUNS_HAVE_AN_OUTCOME,
    lifecycle.CANCELLED_RUNS_KEEP_THEIR_REQUEST,
    lifecycle.ENDED_RUNS_HAVE_NO_OPEN_CALL,
    leases.EVENTS_STAY_BELOW_THE_FENCE,
    leases.THE_MARK_IS_THAT_OF_THE_QUARANTINE,
    leases.QUARANTINED_RUNS_STAND_STILL,
    leases.ONLY_CLAIMABLE_RUNS_ARE_LEASED,
    leases.LEASES_ARE_WHOLE,
    lifecycle.CLAIMABLE_RUNS_ARE_DISCOVERABLE,
    scheduling.READINESS_IS_NOT_BEFORE_ADMISSION,
    scheduling.GATES_STAND_BEFORE_CLAIMS,
    submission.ONE_KEY_ONE_SUBMISSION,
    submission.RUNS_PIN_WHAT_WAS_ADMITTED,
)


#: Read once, before the runs.
WIDE_LAWS: Final[tuple[WholeLaw, ...]] = (
    schema.EVERY_TABLE_IS_GUARDED,
    schema.EVERY_CHECK_HOLDS,
    schema.EVERY_KEY_BEGINS_WITH_THE_TENANT,
    schema.HOT_COLUMNS_ARE_IN_NO_INDEX,
    definitions.DEFINITIONS_ARE_WHAT_THEIR_DIGESTS_SAY,
    leases.LIVE_LEASES_KEEP_TO_THE_LIMIT,
    scheduling.CYCLES_STAND_BEHIND_THEIR_LAST_TURN,
)


def run_laws(fold: FoldLaw) -> tuple[Law, ...]:
    """Give the laws of runs, in their order; ``fold`` says with which application."""
    return (
        *_BYTES,
        *_HISTORIES,
        *_PLACES,
        fold,
        beside.calls_stand_as_their_events_say(),
        beside.quarantines_stand_as_their_records_say(),
        beside.a_load_believes_the_run(),
    )


def fold_law(executables: ExecutableGraphRegistry | None) -> FoldLaw:
    """Make the law of the fold for one audit."""
    return FoldLaw(executables)
