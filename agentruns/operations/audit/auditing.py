"""Hold stored rows against every law that they can show, and write nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence

from attrs import define, field
from sqlalchemy.ext.asyncio import AsyncConnection

from agentruns.domain.ids import RunId
from agentruns.errors import RunNotFoundError
from agentruns.operations.audit.findings import Finding
from agentruns.operations.audit.law import Batch, Law, by_run
from agentruns.operations.audit.order import WIDE_LAWS, fold_law, run_laws
from agentruns.operations.audit.scope import EVERYTHING, AuditScope, Key
from agentruns.operations.audit.snapshot import Snapshot, moment
from agentruns.operations.audit.walking import Walk
from agentruns.orm.base import SCHEMA_TOKEN
from agentruns.runtime.arguments import check_argument
from agentruns.runtime.registry import ExecutableGraphRegistry
from agentruns.runtime.retry import as_store_error
from agentruns.runtime.telemetry.upkeep import observed_audit


@define(kw_only=True)
class AuditProgress:
    """Say how far an audit is; it changes while the audit goes on.

    Attributes:
        run_count: runs in the scope when the audit began.
        runs: that were read.
        events: of these runs.
        unproven: of these runs, those whose graph was not here: states were taken as recorded, and the schemas of the
            application were not asked.
        findings: so far.
        last: the run that was read last.
        is_complete: all of the scope was read.
        seconds: since the audit began.
    """

    run_count: int = 0
    runs: int = 0
    events: int = 0
    unproven: int = 0
    findings: int = 0
    last: Key | None = None
    is_complete: bool = False
    began: float = field(factory=time.monotonic, repr=False)

    @property
    def seconds(self) -> float:  # noqa: D102
        return time.monotonic() - self.began

    @property
    def rate(self) -> float:
        """Runs in a second."""
        return self.runs / max(self.seconds, 1e-9)


async def audit_runs(
    connection: AsyncConnection,
    scope: AuditScope = EVERYTHING,
    *,
    executables: ExecutableGraphRegistry | None = None,
    schema: str = SCHEMA_TOKEN,
    on_progress: Callable[[AuditProgress], None] | None = None,
) -> AsyncIterator[Finding]:
    """Read everything of a scope and give what contradicts a law, as it is found. Nothing is written.

    Runs are read in batches, each in a transaction of its own that is REPEATABLE READ and READ ONLY: a run that moves
    meanwhile is read as of one moment. Memory grows neither with the number of runs nor with their length.

    Of a run the laws are asked in the order in which they rest on each other, and what the first broken one finds is
    given: whatever else would be found of the run may follow from that. Repair it, and audit again.

    Args:
        connection: open, and in no transaction; its isolation becomes REPEATABLE READ. It needs to read all tables: a
            reader's privileges with the evidence suffice.
        scope: what is read.
        executables: of an application, by whose reducers and schemas the runs of its graphs are folded.
        schema: the database schema.
        on_progress: called after each batch.

    Raises:
        RunNotFoundError: the tenant has no such run.
        StoreUnavailableError: the database's trouble passes; begin again, from the last run if you like.
    """
    check_argument("scope", scope, AuditScope)
    audit = _Audit(connection, scope, schema, executables, on_progress)
    with observed_audit(audit.progress, scope.tenant_id, scope.run_id) as observed:
        with as_store_error(schema, commits=False):
            async for finding in audit.findings():
                yield finding
        observed.ended_with(audit.progress)


@define
class _Audit:
    connection: AsyncConnection
    scope: AuditScope
    schema: str
    executables: ExecutableGraphRegistry | None
    on_progress: Callable[[AuditProgress], None] | None
    progress: AuditProgress = field(factory=AuditProgress, init=False)

    async def findings(self) -> AsyncIterator[Finding]:
        walk = Walk(self.connection, self.scope, self.schema)
        self.progress.run_count = await walk.count()
        for finding in self._counted(await self._wide()):
            yield finding
        fold = fold_law(self.executables)
        laws = run_laws(fold)
        while not walk.is_over:
            async with walk.next() as (snapshot, batch):
                found = await _of_batch(laws, snapshot, batch)
            self._advance(batch, unproven=fold.unproven, is_complete=walk.is_over)
            # The transaction is over: whoever takes the findings may take their time.
            for finding in self._counted(found):
                yield finding
            self._tell()
        self._check_found()

    async def _wide(self) -> list[Finding]:
        async with moment(self.connection, self.schema) as snapshot:
            laws = [law for law in WIDE_LAWS if law.concerns(self.scope)]
            return [finding for law in laws for finding in await law.find(snapshot, self.scope)]

    def _counted(self, found: list[Finding]) -> list[Finding]:
        self.progress.findings += len(found)
        return found

    def _advance(self, batch: Batch, *, unproven: int, is_complete: bool) -> None:
        self.progress.runs += len(batch.runs)
        self.progress.events += sum(head for _, head in batch.runs)
        self.progress.unproven = unproven
        self.progress.last = batch.runs[-1][0] if batch.runs else self.progress.last
        self.progress.is_complete = is_complete

    def _tell(self) -> None:
        if self.on_progress is not None:
            self.on_progress(self.progress)

    def _check_found(self) -> None:
        """Refuse a run that is not there; rows of it that have stayed behind are findings."""
        run_id: RunId | None = self.scope.run_id
        if run_id is not None and not self.progress.runs and not self.progress.findings:
            raise RunNotFoundError(tenant_id=self.scope.tenant_id, id=run_id)


async def _of_batch(laws: Sequence[Law], snapshot: Snapshot, batch: Batch) -> list[Finding]:
    """Ask one law after the other, and of a run no more once something has been found of it; in the order of runs."""
    broken: set[tuple[str | None, str | None]] = set()
    found: list[Finding] = []
    for law in laws:
        new = [each for each in await law.find(snapshot, batch) if (each.tenant_id, each.run_id) not in broken]
        broken |= {(each.tenant_id, each.run_id) for each in new}
        found.extend(new)
        batch = batch.without(broken)
    return sorted(found, key=by_run)
