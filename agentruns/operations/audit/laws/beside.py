"""What a fold does not read: calls with their bodies, quarantines, the ends of a run, and definitions of graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from attrs import define, field

from agentruns.domain.digests import Digest
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.kinds import EventKind, find_kind
from agentruns.domain.run_ends_checks import verify_ends
from agentruns.domain.scalars import JournalEventKind, TenantId
from agentruns.errors import CorruptDataError, InvalidValueError, NotFoundError
from agentruns.operations.audit.findings import Finding
from agentruns.operations.audit.law import Batch
from agentruns.operations.audit.laws.chain import events_of
from agentruns.operations.audit.laws.derived import derived, ids_of
from agentruns.operations.audit.scope import Key
from agentruns.operations.audit.snapshot import Snapshot
from agentruns.runtime.decoded_admissions import DecodedAdmissions
from agentruns.runtime.whole_calls import CallChecks
from agentruns.runtime.whole_run_checks import RunChecks
from agentruns.store.ends import Ends, RunLookup
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.whole_history import IsolationRow, WholeHistory

_KEYS: Final = "SELECT x.tenant_id, x.run_id FROM $.{0} AS x WHERE @x"
#: The runs that have made a call.
_CALLING: Final = " UNION ".join(
    (
        *(
            _KEYS.format(table)
            for table in (
                "model_invocations",
                "model_invocation_revisions",
                "tool_invocations",
                "tool_invocation_revisions",
            )
        ),
        _KEYS.format("run_events") + " AND (x.kind LIKE 'model-%' OR x.kind LIKE 'tool-%')",
    )
)
#: The runs that have been isolated.
_ISOLATED: Final = " UNION ".join(_KEYS.format(table) for table in ("run_quarantines", "run_quarantine_releases"))
#: Bytes of admissions that are kept decoded between the runs of a batch.
_KEPT_BYTES: Final = 8 * 1024 * 1024

Check = Callable[[Snapshot, RunChecks, int], Awaitable[None]]


@define
class CheckedLaw:
    """Check the runs of a batch, one after the other.

    Attributes:
        label: such as ``LED-1``.
        sentence: what should hold.
        check: raises :class:`CorruptDataError` for what does not; it is given the sequence of the head.
        concerned: gives the keys of the runs that have anything of the kind; without it all have.
    """

    label: str
    sentence: str
    check: Check
    concerned: str = ""

    async def find(self, snapshot: Snapshot, batch: Batch) -> list[Finding]:
        """Check each run; the first thing that is refused is the finding of a run."""
        runs = batch.runs
        if self.concerned:
            rows = await snapshot.rows(self.concerned, batch.keys.parameters)
            keys = {(row["tenant_id"], str(row["run_id"])) for row in rows}
            runs = [each for each in runs if each[0] in keys]
        found = [await self._of_run(snapshot, key, head) for key, head in runs]
        return [each for each in found if each is not None]

    async def _of_run(self, snapshot: Snapshot, key: Key, head: int) -> Finding | None:
        try:
            await self.check(snapshot, RunChecks(*ids_of(key)), head)
        except CorruptDataError as error:
            return derived(error, key, label=self.label, law=self.sentence)
        return None


async def _calls(snapshot: Snapshot, checks: RunChecks, head: int) -> None:
    kinds: Counter[EventKind] = Counter()
    async for row in events_of(snapshot, checks.tenant_id, checks.run_id):
        try:
            kind = find_kind(JournalEventKind(row.kind), Digest(row.schema_digest))
        except InvalidValueError:
            raise checks.corrupt("kind") from None
        if kind is not None:
            kinds[kind] += 1
    await CallChecks(snapshot, checks, kinds, head).count()


async def _isolations(snapshot: Snapshot, checks: RunChecks, _head: int) -> None:
    for row in await snapshot.read(partial(_isolation_rows, checks.tenant_id, checks.run_id)):
        checks.isolation(row)


def _isolation_rows(tenant_id: TenantId, run_id: RunId, work: UnitOfWork) -> tuple[IsolationRow, ...]:
    return WholeHistory(work).isolations(tenant_id, run_id)


@define
class _EndsOfRuns:
    """Read the ends of a run as a load does, without asking any application."""

    decode: DecodedAdmissions = field(factory=partial(DecodedAdmissions, maximum_bytes=_KEPT_BYTES))

    async def __call__(self, snapshot: Snapshot, checks: RunChecks, _head: int) -> None:
        lookup = RunLookup(tenant_id=checks.tenant_id, run_id=checks.run_id)
        (ends,) = await snapshot.read(lambda work: Ends(work).read([lookup]))
        try:
            verify_ends(ends, self.decode)
        except NotFoundError:
            raise checks.corrupt("runs") from None


def calls_stand_as_their_events_say() -> CheckedLaw:
    """Make the law of calls: the fold reads their events, and this their rows and bodies."""
    return CheckedLaw("LED-2", "every call of a run has the rows and the bodies that its events name", _calls, _CALLING)


def quarantines_stand_as_their_records_say() -> CheckedLaw:
    """Make the law of quarantines and their releases."""
    return CheckedLaw(
        "DB-6", "the columns of a quarantine, and of its release, are those of its record", _isolations, _ISOLATED
    )


def a_load_believes_the_run() -> CheckedLaw:
    """Make the law of loads: submission, key, lease, scheduling and the rest of the run row are in order."""
    return CheckedLaw("SUB-17", "what a load of the run reads verifies", _EndsOfRuns())
