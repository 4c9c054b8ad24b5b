"""What was verified of a whole run: a record whose digest a decision can name."""

from __future__ import annotations

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.ids import RunId
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_members
from agentruns.domain.numbers import ByteCount, ExecutionCount, JournalSequence, RunRevision
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus


@frozen(kw_only=True)
class RunVerificationReport(KeptBytes):
    """Say how much of a run was read and found in order, up to which head. Equal readings make equal reports.

    Its digest is plain. Counts and sizes only; what a run holds stands nowhere in it.

    Attributes:
        head_sequence: the last event that was verified, and so the number of events.
        head_digest: of that event, and so of everything before it.
        status: of the run at this head.
        graph_digest: of the definition by whose code each barrier was planned again.
        supersteps: barriers that were planned again and found equal.
        attempts: starts of nodes.
        results: completions of nodes.
        waits: that were registered, with how each was settled.
        calls: of models and tools.
        isolations: quarantines of the run, released ones among them.
        bytes: of event data and bodies, those of calls among them.
    """

    tenant_id: TenantId
    run_id: RunId
    head_sequence: JournalSequence
    head_digest: Digest
    status: RunStatus
    revision: RunRevision
    graph_digest: Digest
    supersteps: ExecutionCount
    attempts: ExecutionCount
    results: ExecutionCount
    waits: ExecutionCount
    calls: ExecutionCount
    isolations: ExecutionCount
    bytes: ByteCount

    def __attrs_post_init__(self) -> None:
        check_members(self)
