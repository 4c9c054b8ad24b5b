"""A law of stored rows, and the batch of runs that it is held against."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any, Final, Protocol, Self, runtime_checkable

from attrs import evolve, frozen
from sqlalchemy import RowMapping

from agentruns.operations.audit.findings import Finding
from agentruns.operations.audit.scope import AuditScope, DrawnKeys, Key, KeyRange
from agentruns.operations.audit.snapshot import Snapshot

_DIGITS: Final = re.compile(r"\d+")
_LONGEST_NUMBER: Final = 20
#: What an event says, beside its columns. Bytes that are no JSON give nulls, so that no statement fails over them.
FACTS = """
WITH fact AS MATERIALIZED (
  SELECT e.tenant_id, e.run_id, e.sequence, e.recorded_at, e.epoch, e.kind, said.data,
    said.data ->> 'superstep' AS superstep, said.data ->> 'node_id' AS node_id, said.data ->> 'attempt' AS attempt
  FROM $.run_events AS e
  CROSS JOIN LATERAL (SELECT encode(e.data, 'escape') AS plain) AS bytes
  CROSS JOIN LATERAL (
    SELECT CASE WHEN pg_input_is_valid(bytes.plain, 'jsonb') THEN bytes.plain::jsonb END AS data
  ) AS said
  WHERE @e
)
"""


@frozen(kw_only=True)
class Batch:
    """Hold runs that are read in one snapshot, and the range of keys that has no others, or only their keys.

    Attributes:
        keys: whatever of a run's tables lies in the range is meant, also rows without a run; of runs that were drawn,
            what is theirs.
        runs: the run rows in it, in the order of keys, each with the sequence of its head.
    """

    keys: KeyRange | DrawnKeys
    runs: Sequence[tuple[Key, int]]

    def without(self, broken: Collection[tuple[str | None, str | None]]) -> Self:
        """Leave out runs that something has been found of."""
        return evolve(self, runs=[each for each in self.runs if each[0] not in broken])


class Law(Protocol):
    """Find where the runs of a batch break it."""

    @property
    def label(self) -> str:
        """Name it, as the findings do."""
        ...

    @property
    def sentence(self) -> str:
        """Say what should hold."""
        ...

    async def find(self, snapshot: Snapshot, batch: Batch, /) -> list[Finding]:
        """Give what breaks it."""
        ...


@runtime_checkable
class WholeLaw(Protocol):
    """A law of what belongs to no run."""

    @property
    def label(self) -> str:
        """Name it, as the findings do."""
        ...

    @property
    def sentence(self) -> str:
        """Say what should hold."""
        ...

    def concerns(self, scope: AuditScope, /) -> bool:
        """Whether there is anything of it in a scope."""
        ...

    async def find(self, snapshot: Snapshot, scope: AuditScope, /) -> list[Finding]:
        """Give what breaks it."""
        ...


@frozen(kw_only=True)
class RowLaw:
    """Compare rows with rows, in one statement over a range of keys.

    Attributes:
        label: such as ``LED-16``.
        sentence: what should hold.
        sql: gives a row for each place where it does not: ``tenant_id``, ``run_id``, ``table``, ``column``, ``key``,
            ``found``, ``wanted``.
    """

    label: str
    sentence: str
    sql: str

    async def find(self, snapshot: Snapshot, batch: Batch) -> list[Finding]:
        """Send the statement for the batch's range of keys."""
        rows = await snapshot.rows(self.sql, batch.keys.parameters)
        return sorted((_finding(self.label, self.sentence, row) for row in rows), key=by_run)


@frozen(kw_only=True)
class WideLaw:
    """Compare rows that belong to no run, in one statement; else as :class:`RowLaw`.

    Attributes:
        needs_everything: what it looks at belongs to no tenant.
    """

    label: str
    sentence: str
    sql: str
    needs_everything: bool = False

    def concerns(self, scope: AuditScope) -> bool:
        """Whether there is anything of it in a scope."""
        return scope.run_id is None and not (self.needs_everything and scope.tenant_id is not None)

    async def find(self, snapshot: Snapshot, scope: AuditScope) -> list[Finding]:
        """Send the statement for the tenants of a scope."""
        rows = await snapshot.rows(self.sql, wide_parameters(snapshot, scope))
        return sorted((_finding(self.label, self.sentence, row) for row in rows), key=by_run)


def wide_parameters(snapshot: Snapshot, scope: AuditScope) -> dict[str, Any]:
    """Give what the statement of a wide law may name."""
    keys = scope.keys
    first = "" if scope.tenant_id is None else scope.tenant_id.text
    return {"schema": snapshot.schema, "first_tenant": first, "last_tenant": keys.until[0]}


def by_run(finding: Finding) -> tuple[str, str, str]:
    """Order findings, numbers in a place as numbers: a statement gives its rows in any order."""
    place = _DIGITS.sub(lambda found: found[0].zfill(_LONGEST_NUMBER), finding.place)
    return finding.tenant_id or "", finding.run_id or "", place


def _finding(label: str, sentence: str, row: RowMapping) -> Finding:
    return Finding(
        label=label,
        law=sentence,
        tenant_id=row["tenant_id"],
        run_id=None if row["run_id"] is None else str(row["run_id"]),
        table=row["table"],
        column=row["column"],
        key=row["key"] or "",
        found=row["found"] or "nothing",
        wanted=row["wanted"] or "nothing",
    )
