"""What the laws that derive a run anew have in common: a run at a time, by the readers that drives use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.errors import CorruptDataError, InvalidValueError
from agentruns.operations.audit.findings import Finding
from agentruns.operations.audit.scope import Key

#: The table that a component without a column is about; any other rule is about the events.
_TABLES: Final[Mapping[str, str]] = {
    "admission": "agent_admissions",
    "submission": "agent_submission_keys",
    "checkpoint": "run_checkpoints",
    "barrier": "run_checkpoints",
    "graph_definitions": "graph_definitions",
    "quarantines": "run_quarantines",
}
#: A component that begins like this is a table.
_FAMILIES: Final = ("run", "agent", "node", "model", "tool")
#: The law that a rule of the fold keeps, where it is another one than that of the reader.
_LABELS: Final[Mapping[str, str]] = {
    "chain": "LED-2",
    "body": "LED-2",
    "kind": "LED-21",
    "source": "LED-16",
    "status": "SUB-25",
    "order": "LIF-1",
    "position": "LED-16",
    "attempt_history": "LED-17",
    "result": "GRA-7",
    "barrier": "GRA-6",
    "waits": "LIF-8",
    "cancellation": "LIF-15",
    "unsettled": "LIF-16",
    "usage": "LED-22",
}


def ids_of(key: Key) -> tuple[TenantId, RunId]:
    """Name a run as the readers do.

    Raises:
        CorruptDataError: the key of the row is none that a run may have.
    """
    tenant, run = key
    try:
        return TenantId(tenant), RunId(run)
    except InvalidValueError as error:
        raise CorruptDataError(component="runs.run_id", reason=error.reason) from None


def derived(error: CorruptDataError, key: Key, *, label: str, law: str, at: str = "") -> Finding:
    """Say what a reader refuses, at the table and column that it names."""
    table, _, column = error.component.partition(".")
    rule = "" if column else error.component
    if rule == "row":
        table, rule = error.reason or "run_events", "row"
    elif rule:
        table = (
            rule if rule.startswith(("run_", "agent_", "node_", "model_", "tool_")) else _TABLES.get(rule, "run_events")
        )
    nodes = "".join(f" node_id={node_id}" for node_id in error.node_ids)
    return Finding(
        label=_LABELS.get(rule, label),
        law=law,
        tenant_id=key[0],
        run_id=key[1],
        table=table,
        column=column or None,
        key=(at + nodes).strip(),
        found=_found(error, rule),
        wanted="what follows from the events before" if column else "what the rule permits",
    )


def _found(error: CorruptDataError, rule: str) -> str:
    if rule == "row":
        return "a row that is missing, one too many, or of no event"
    if not rule:
        return "another value"
    return f"a breach of the rule {rule}" + (f" ({error.reason})" if error.reason else "")
