"""The law of graph definitions: their bytes are the definition that their digest names."""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen
from sqlalchemy import RowMapping

from agentruns.domain.graph.definition import CompiledGraph
from agentruns.errors import InvalidValueError
from agentruns.operations.audit.findings import Finding
from agentruns.operations.audit.law import wide_parameters
from agentruns.operations.audit.scope import AuditScope
from agentruns.operations.audit.snapshot import Snapshot

_COLUMNS: Final = "tenant_id, graph_owner_issuer, graph_owner_subject, graph_name, graph_version"
#: One definition at a time: it may have two megabytes.
_NEXT: Final = f"""
SELECT {_COLUMNS}, definition_digest, definition FROM $.graph_definitions
WHERE tenant_id BETWEEN :first_tenant AND :last_tenant
  AND ({_COLUMNS}) > (:tenant_id, :graph_owner_issuer, :graph_owner_subject, :graph_name, :graph_version)
ORDER BY {_COLUMNS} LIMIT 1
"""


@frozen(kw_only=True)
class DefinitionLaw:
    """Restore each definition of the tenants of a scope, and compare its digest and its names."""

    label: str = "GRA-1"
    sentence: str = "the bytes of a graph's definition are the graph that its digest and its names say"

    def concerns(self, scope: AuditScope) -> bool:
        """Whether there is anything of it in a scope: the graph of one run is read with the run."""
        return scope.run_id is None

    async def find(self, snapshot: Snapshot, scope: AuditScope) -> list[Finding]:
        """Read the definitions one after the other."""
        found: list[Finding] = []
        after: dict[str, Any] = dict.fromkeys(_COLUMNS.split(", "), "")
        parameters = wide_parameters(snapshot, scope)
        while rows := await snapshot.rows(_NEXT, {**parameters, **after}):
            (row,) = rows
            after = {name: row[name] for name in after}
            found.extend(self._of(row))
        return found

    def _of(self, row: RowMapping) -> list[Finding]:
        try:
            graph = CompiledGraph.restore(row["definition"])
        except InvalidValueError as error:
            return [self._finding(row, "definition", f"no definition ({error.reason})", "the canonical bytes of one")]
        owner, capability = graph.identity.owner, graph.identity.capability
        wanted = {
            "graph_owner_issuer": owner.issuer.text,
            "graph_owner_subject": owner.subject.text,
            "graph_name": capability.name.text,
            "graph_version": str(capability.version),
        }
        found = [self._finding(row, name, row[name], value) for name, value in wanted.items() if row[name] != value]
        if row["definition_digest"] != graph.definition_digest.raw:
            digest = f"sha256:{row['definition_digest'].hex()}"
            found.append(self._finding(row, "definition_digest", digest, str(graph.definition_digest)))
        return found

    def _finding(self, row: RowMapping, column: str, found: str, wanted: str) -> Finding:
        return Finding(
            label=self.label,
            law=self.sentence,
            tenant_id=row["tenant_id"],
            table="graph_definitions",
            column=column,
            key=f"name={row['graph_name']} version={row['graph_version']}",
            found=found,
            wanted=wanted,
        )


DEFINITIONS_ARE_WHAT_THEIR_DIGESTS_SAY: Final = DefinitionLaw()
