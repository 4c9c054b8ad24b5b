"""Submission keys: find what stands under them, and give one to a run that was admitted without."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from sqlalchemy import RowMapping

from agentruns.domain.digests import Digest
from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import instant, raw
from agentruns.store.sender import Sender
from agentruns.store.sets import POSITION
from agentruns.store.statements import submit as statements


@frozen(kw_only=True)
class SubmissionProbe:
    """Ask what stands under a key and a candidate run id.

    Attributes:
        key_digest: ``None`` for a submission without a key: then only the run id is looked for.
        graph_digest: of the graph whose definition the tenant must have.
    """

    tenant_id: TenantId
    run_id: RunId
    key_digest: Digest | None
    graph_digest: Digest


@frozen(kw_only=True)
class ProbeAnswer:
    """What a probe saw. Nothing of it is evidence.

    Attributes:
        now: the database's clock.
        is_read_only: whether the transaction may not write.
        has_key: whether a submission stands under the key.
        has_candidate: whether there is a run, or the submission of one, under the candidate run id.
        has_graph: whether the tenant has the graph's definition.
    """

    now: Timestamp
    is_read_only: bool
    has_key: bool
    has_candidate: bool
    has_graph: bool


@frozen(kw_only=True)
class KeyAttachment:
    """Give a key to a run that has none."""

    tenant_id: TenantId
    run_id: RunId
    key_digest: Digest
    keyless_digest: Digest


class SubmissionKeys:
    """The arbiter of admissions. The raw key never reaches this class."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def probe(self, probes: Sequence[SubmissionProbe]) -> tuple[ProbeAnswer, ...]:
        """Look for keys, candidates and graphs, in the order asked for, without a lock."""
        rows = [(each.tenant_id.text, each.run_id.text, raw(each.key_digest), each.graph_digest.raw) for each in probes]
        found = self._work.execute(statements.probe(), statements.PROBES.parameters(rows)).mappings()
        return tuple(_probe_answer(row) for row in sorted(found, key=lambda row: int(row[POSITION])))

    def attach(self, attachments: Sequence[KeyAttachment]) -> tuple[bool, ...]:
        """Attach keys; for each whether it was done, or the run has one already, or the key stands for something."""
        rows = [
            (each.tenant_id.text, each.run_id.text, each.key_digest.raw, each.keyless_digest.raw)
            for each in attachments
        ]
        found = self._work.execute(statements.attach(), statements.ATTACHMENTS.parameters(rows))
        attached = {(row.tenant_id, row.run_id) for row in found}
        return tuple((each.tenant_id.text, each.run_id.text) in attached for each in attachments)


def _probe_answer(row: RowMapping) -> ProbeAnswer:
    return ProbeAnswer(
        now=instant(row["now"]),
        is_read_only=row["is_read_only"],
        has_key=row["key_run_id"] is not None,
        has_candidate=row["candidate_run_id"] is not None or row["candidate_submission_digest"] is not None,
        has_graph=row["has_graph"],
    )
