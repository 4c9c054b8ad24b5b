"""Read the ends of runs: constant cost however long their history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from attrs import frozen
from sqlalchemy import RowMapping

from agentruns.domain.digests import Digest
from agentruns.domain.ids import RunId
from agentruns.domain.run_ends import (
    RunEnds,
    StoredAdmission,
    StoredCheckpoint,
    StoredEvent,
    StoredKey,
    StoredOutcome,
    StoredQuarantine,
    StoredRun,
    StoredWait,
)
from agentruns.domain.scalars import TenantId
from agentruns.store.mapping import raw
from agentruns.store.sender import Sender
from agentruns.store.sets import POSITION
from agentruns.store.statements import ends as statements

Record = TypeVar("Record")

#: Bodies of one read together; what is beyond is read alone.
MAXIMUM_BODY_BYTES: Final = 64 * 1024 * 1024


@frozen(kw_only=True)
class RunLookup:
    """Ask for a run by its id or by its key.

    Attributes:
        run_id: the run, or ``None`` when the key decides.
        key_digest: digest of the key, or ``None`` when the id decides.
    """

    tenant_id: TenantId
    run_id: RunId | None = None
    key_digest: Digest | None = None


class Ends:
    """Read what is needed to show a run, or to ask for its cancellation, in one statement."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def read(self, lookups: Sequence[RunLookup], *, maximum_bytes: int = MAXIMUM_BODY_BYTES) -> tuple[RunEnds, ...]:
        """Read the ends of each run, in the order asked for. Nothing is locked, and nothing is verified yet.

        Bodies beyond ``maximum_bytes`` are left out, never those of the first run.
        """
        rows = [(each.tenant_id.text, each.run_id and each.run_id.text, raw(each.key_digest)) for each in lookups]
        parameters = {**statements.ITEMS.parameters(rows), "maximum_bytes": maximum_bytes}
        found = self._work.execute(statements.ends(), parameters).mappings()
        return tuple(_ends(lookups[row[POSITION] - 1], row) for row in found)


def _ends(lookup: RunLookup, row: RowMapping) -> RunEnds:
    return RunEnds(
        tenant_id=lookup.tenant_id,
        run_id=row["found_run_id"],
        key_digest=lookup.key_digest,
        now=row["now"],
        is_read_only=row["is_read_only"],
        is_whole=row["is_whole"],
        run=_record(StoredRun, row, "run", present="run_run_id", names=("run_id", *statements.RUN_COLUMNS)),
        admitted=_record(StoredKey, row, "admitted", present="admitted_key_digest", names=statements.KEY_COLUMNS),
        attached=_record(StoredKey, row, "attached", present="attached_key_digest", names=statements.KEY_COLUMNS),
        admission=_record(
            StoredAdmission,
            row,
            "admission",
            present="admission_sequence",
            names=("agent_name", "agent_version", "admission_digest", "sequence", "body"),
        ),
        first=_checkpoint(row, "first", superstep=0),
        newest=_checkpoint(row, "newest", superstep=row["newest_superstep"]),
        events={each.sequence: each for each in _records(StoredEvent, row, "event", _EVENT_NAMES)},
        is_head_passed=row["is_head_passed"],
        cancellation=_outcome(row, "cancellation"),
        outcome=_outcome(row, "outcome"),
        waits=_records(StoredWait, row, "wait", _WAIT_NAMES),
        quarantines=_records(StoredQuarantine, row, "quarantine", statements.QUARANTINE_COLUMNS),
    )


_EVENT_NAMES: Final = (*statements.EVENT_COLUMNS, "previous")
_WAIT_NAMES: Final = ("wait_id", "kind", "digest", "sequence", "registration_digest", "is_settled")


def _record(
    record: Callable[..., Record], row: RowMapping, prefix: str, *, present: str, names: Sequence[str]
) -> Record | None:
    """Make the record of a joined row; a column that is never null says whether there is one."""
    if row[present] is None:
        return None
    return record(**{name: row[f"{prefix}_{name}"] for name in names})


def _records(record: Callable[..., Record], row: RowMapping, prefix: str, names: Sequence[str]) -> tuple[Record, ...]:
    """Make the records of aggregated rows: one array per column, all in one order."""
    arrays = [row[f"{prefix}_{name}"] or () for name in names]
    return tuple(record(**dict(zip(names, values, strict=True))) for values in zip(*arrays, strict=True))


def _checkpoint(row: RowMapping, prefix: str, *, superstep: int | None) -> StoredCheckpoint | None:
    if row[f"{prefix}_sequence"] is None or superstep is None:
        return None
    return StoredCheckpoint(
        superstep=superstep,
        checkpoint_id=row[f"{prefix}_checkpoint_id"],
        ready=row[f"{prefix}_ready"],
        state_digest=row[f"{prefix}_state_digest"],
        digest=row[f"{prefix}_digest"],
        sequence=row[f"{prefix}_sequence"],
        parent_digest=row["newest_parent_digest"] if superstep else None,
    )


def _outcome(row: RowMapping, prefix: str) -> StoredOutcome | None:
    return _record(StoredOutcome, row, prefix, present=f"{prefix}_sequence", names=("digest", "sequence", "body"))
