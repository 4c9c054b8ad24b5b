"""Remove whole runs: the victims, a delete for each table of a run, and the receipt, in one statement."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    Column,
    Select,
    Text,
    and_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import BYTEA, aggregate_order_by
from sqlalchemy.sql.elements import ColumnElement

from agentruns.domain.digests import DigestPurpose
from agentruns.orm import SCHEMA_TOKEN, Base
from agentruns.store.sets import materialized
from agentruns.store.statements.retention_reads import Cause, before, clock, due, receipts, tenant_id
from agentruns.store.tables import admissions

#: Bounds of one batch; a run that has more events than that goes alone.
MOST_RUNS: Final = 100
MOST_EVENTS: Final = 50_000

#: Every table that carries a run's key, with the columns that hold bodies. Slots are no part of a run: one that names
#: a removed run is free by its rule.
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "agent_submission_keys": (),
    "agent_admissions": ("body",),
    "run_events": ("data",),
    "run_checkpoints": ("ready", "state"),
    "run_outcomes": ("body",),
    "node_results": ("body",),
    "node_attempts": (),
    "run_waits": ("registration", "resolution"),
    "tool_invocation_revisions": ("body",),
    "tool_invocations": ("intent",),
    "model_invocation_revisions": ("body",),
    "model_invocations": ("intent",),
    "outbox_results": ("body",),
    "outbox_attempts": (),
    "outbox_deliveries": ("body",),
    "run_quarantine_releases": ("body",),
    "run_quarantines": ("body",),
    "runs": (),
}

#: One removed run in the list whose digest stands in the receipt.
_MEMBER: Final = '{"admission_digest":%s,"run_id":"%s"}'


@cache
def permit() -> Select[Any]:
    """Let deletes, and nothing else, pass the append-only triggers of a schema until the transaction ends."""
    schema = bindparam("schema", type_=Text())
    return select(func.set_config("agentruns.retention", schema, literal_column("true")))


@cache
def remove(cause: Cause) -> Select[Any]:
    """Remove what may go of a window: whoever else removes, or refers to a run just now, is passed over.

    Foreign keys are checked when the statement ends, so the order of the tables is free, and a run goes with all that
    belongs to it or stays with all of it. Where nothing may go there is no receipt either.
    """
    victim = _victims(cause)
    deleted = {name: _deleted(name, victim) for name in TABLES}
    counted = _counted(deleted)
    run_count = select(func.count()).select_from(deleted["runs"]).scalar_subquery()
    receipt = {
        "tenant_id": tenant_id,
        "receipt_id": bindparam("receipt_id", type_=receipts.c.receipt_id.type),
        "removed_at": clock.c.now,
        "cutoff_at": before("keep"),
        "run_count": run_count,
        "row_count": counted.c.row_count,
        "byte_count": counted.c.byte_count,
        "runs_digest": _runs_digest(victim),
        "policy": bindparam("policy", type_=BYTEA()),
    }
    rows = select(*receipt.values()).select_from(counted.join(clock, true())).where(run_count > 0)
    inserted = insert(receipts).from_select(list(receipt), rows).cte("receipt")
    last = select(victim.c.since, victim.c.run_id).order_by(victim.c.since.desc(), victim.c.run_id.desc()).limit(1)
    end = last.subquery("last")
    return (
        select(run_count.label("run_count"), counted.c.row_count, counted.c.byte_count, end.c.since, end.c.run_id)
        .select_from(counted.outerjoin(end, true()))
        .add_cte(inserted)
    )


def _victims(cause: Cause) -> CTE:
    """Lock what may go, and take of it what the bounds of a batch permit, the first one always."""
    locked = materialized(due(cause, limit=MOST_RUNS).with_for_update(skip_locked=True), "locked")
    events = func.sum(locked.c.head_sequence).over(order_by=(locked.c.since, locked.c.run_id)).label("events")
    summed = select(locked, events).subquery("summed")
    is_first = summed.c.events == summed.c.head_sequence
    return materialized(
        select(summed.c.tenant_id, summed.c.run_id, summed.c.since).where(
            or_(is_first, summed.c.events <= literal_column(str(MOST_EVENTS)))
        ),
        "victim",
    )


def _deleted(name: str, victim: CTE) -> CTE:
    table = Base.metadata.tables[f"{SCHEMA_TOKEN}.{name}"]
    is_of_victim = and_(table.c.tenant_id == victim.c.tenant_id, table.c.run_id == victim.c.run_id)
    sizes = [_size(table.c[column]) for column in TABLES[name]]
    byte_count = sum(sizes[1:], sizes[0]) if sizes else literal_column("0", BigInteger())
    return delete(table).where(is_of_victim).returning(byte_count.label("byte_count")).cte(f"delete_{name}")


def _size(body: Column[Any]) -> ColumnElement[int]:
    size = func.octet_length(body, type_=BigInteger())
    return func.coalesce(size, 0) if body.nullable else size


def _counted(deleted: Mapping[str, CTE]) -> CTE:
    each = union_all(
        *(
            select(func.count().label("row_count"), func.sum(removed.c.byte_count).label("byte_count"))
            for removed in deleted.values()
        )
    ).subquery("each")
    totals: list[Any] = [cast(func.coalesce(func.sum(counts), 0), BigInteger()).label(counts.key) for counts in each.c]
    return materialized(select(*totals), "counted")


def _runs_digest(victim: CTE) -> ColumnElement[bytes]:
    """Digest the sorted list of runs and admissions; a run older than admissions has none."""
    digest = literal('"sha256:') + func.encode(admissions.c.admission_digest, "hex", type_=Text()) + '"'
    member = func.format(_MEMBER, func.coalesce(digest, "null"), victim.c.run_id)
    members = func.string_agg(member, aggregate_order_by(literal(","), victim.c.run_id), type_=Text())
    joined = select(func.concat("[", members, "]")).select_from(
        victim.outerjoin(
            admissions,
            and_(admissions.c.tenant_id == victim.c.tenant_id, admissions.c.run_id == victim.c.run_id),
        )
    )
    domain = literal(DigestPurpose.RETENTION_RECEIPT.domain, BYTEA())
    encoded = func.convert_to(joined.scalar_subquery(), "UTF8", type_=BYTEA())
    return func.sha256(domain.op("||")(encoded), type_=BYTEA())
