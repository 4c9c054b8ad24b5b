"""Read a run at full depth: all of it, from event 1, whatever has been verified before."""

from __future__ import annotations

from collections import Counter
from functools import partial

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import RunId
from agentruns.domain.ledger.event import JournalHead
from agentruns.domain.ledger.kinds import EventKind
from agentruns.domain.ledger.state import RunState
from agentruns.domain.numbers import ByteCount, ExecutionCount
from agentruns.domain.scalars import TenantId
from agentruns.domain.snapshot import AgentRunSnapshot
from agentruns.domain.verification_report import RunVerificationReport
from agentruns.errors import CorruptDataError, SchemaRejectedError
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.replay import ReplayedRun, RunReader
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.verification import RunVerifier
from agentruns.runtime.whole_calls import CallChecks
from agentruns.runtime.whole_run_checks import JournalPass, RunChecks
from agentruns.store.ends import Ends, RunLookup
from agentruns.store.unit_of_work import UnitOfWork
from agentruns.store.whole_history import FIRST_ID, PAGE, EventRow, WaitRow, WholeHistory


@frozen(kw_only=True)
class WholeRun:
    """A run of which everything was read and found in order.

    Attributes:
        state: the fold at the head.
        head: up to which all was verified; the run may have moved on.
        snapshot: what may be shown of it, from a read after the fold.
        report: counts and sizes, with a digest that a decision can name.
    """

    state: RunState
    head: JournalHead
    snapshot: AgentRunSnapshot
    report: RunVerificationReport


class WholeRunReader:
    """Verify whole runs. Reading executes no node and changes nothing; memory does not grow with a run's length.

    Args:
        store: where the runs are.
        executables: must have the run's graph, whose reducer plans each barrier again.
    """

    def __init__(self, store: AgentRunStore, executables: ExecutableGraphRegistry) -> None:
        self._store = store
        self._verifier = RunVerifier(executables=executables)
        # Nothing is kept between readings, so each begins at event 1.
        self._reader = RunReader(store, executables)

    async def read(self, tenant_id: TenantId, run_id: RunId) -> WholeRun:
        """Verify a run: its journal, each event against its document, all bodies, every projected column.

        Raises:
            RunNotFoundError: the tenant has no such run.
            ExecutableGraphUnavailableError: this process lacks the run's graph, or cannot fold it now.
            SchemaUnavailableError: this process lacks a schema of the run's.
            CorruptDataError: the first thing that does not verify; ``component`` says where.
            StaleHeadError: ``recovery``; more was written meanwhile than could be followed.
        """
        replayed = await self._reader.read(tenant_id, run_id)
        checks, head = RunChecks(tenant_id, run_id), _head(replayed)
        await self._check_definition(checks, replayed.graph.digest)
        calls = CallChecks(self._store, checks, await self._check_journal(checks, head), head.sequence.value)
        waits = await self._check_waits(checks, replayed.state, until=head.sequence.value)
        call_count = await calls.count()
        isolations = await self._check_isolations(checks)
        snapshot = await self._snapshot(checks)
        counts = {"waits": waits, "isolations": isolations, "calls": call_count}
        report = _report(replayed, head, call_bytes=calls.byte_count, **counts)
        return WholeRun(state=replayed.state, head=head, snapshot=snapshot, report=report)

    async def _check_definition(self, checks: RunChecks, graph_digest: Digest) -> None:
        """Hold the definition that the tenant has against the digest by which the run pins it."""
        found = await self._store.read(lambda work: work.graphs.find(checks.tenant_id, graph_digest))
        if found is None:
            raise checks.corrupt("graph_definitions", reason="missing_artifact")

    async def _check_journal(self, checks: RunChecks, head: JournalHead) -> Counter[EventKind]:
        """Hold each event against its document, and count kinds.

        The digest at the end says that these are the events of the fold.
        """
        journal, last = JournalPass(checks), head.sequence.value
        while journal.sequence < last:
            rows = await self._store.read(partial(_events, checks, journal.sequence, last))
            if not rows:
                raise checks.corrupt("chain")
            journal.add(rows)
        if journal.head is None or journal.head.digest != head.digest:
            raise checks.corrupt("chain")
        return journal.kinds

    async def _check_waits(self, checks: RunChecks, state: RunState, *, until: int) -> int:
        count, after = 0, FIRST_ID
        while True:
            rows = await self._store.read(partial(_waits, checks, after))
            for row in rows:
                checks.wait(row, state=state, until=until)
            count += len([row for row in rows if row.sequence <= until])
            if len(rows) < PAGE:
                return count
            after = rows[-1].wait_id

    async def _check_isolations(self, checks: RunChecks) -> int:
        rows = await self._store.read(lambda work: WholeHistory(work).isolations(checks.tenant_id, checks.run_id))
        for row in rows:
            checks.isolation(row)
        return len(rows)

    async def _snapshot(self, checks: RunChecks) -> AgentRunSnapshot:
        """Verify what stands beside the journal: submission, key, lease, scheduling, the mark of a quarantine."""
        lookup = RunLookup(tenant_id=checks.tenant_id, run_id=checks.run_id)
        (ends,) = await self._store.read(lambda work: Ends(work).read([lookup]))
        verified = self._verifier.verify(ends)
        try:
            return self._verifier.snapshot(verified)
        except SchemaRejectedError as error:
            # It was accepted when it was admitted, and its schema is pinned by a digest.
            raise checks.corrupt("admission", reason=error.part or "") from error


def _events(checks: RunChecks, after: int, until: int, work: UnitOfWork) -> tuple[EventRow, ...]:
    return WholeHistory(work).events(checks.tenant_id, checks.run_id, after=after, until=until)


def _waits(checks: RunChecks, after: str, work: UnitOfWork) -> tuple[WaitRow, ...]:
    return WholeHistory(work).waits(checks.tenant_id, checks.run_id, after=after)


def _head(replayed: ReplayedRun) -> JournalHead:
    state = replayed.state
    if state.head is None:
        raise CorruptDataError(tenant_id=state.tenant_id, run_id=state.run_id, component="run_events")
    return state.head


def _report(replayed: ReplayedRun, head: JournalHead, *, call_bytes: int, **counts: int) -> RunVerificationReport:
    state, fold = replayed.state, replayed.report
    return RunVerificationReport(
        tenant_id=state.tenant_id,
        run_id=state.run_id,
        head_sequence=head.sequence,
        head_digest=head.digest,
        status=state.status,
        revision=state.revision,
        graph_digest=replayed.graph.digest,
        supersteps=ExecutionCount(fold.supersteps_replayed),
        attempts=ExecutionCount(fold.attempts_verified),
        results=ExecutionCount(fold.results_verified),
        bytes=ByteCount(fold.bytes_verified + call_bytes),
        **{name: ExecutionCount(count) for name, count in counts.items()},
    )
