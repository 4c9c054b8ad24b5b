"""Read the ends of runs: what stands at the beginning of a journal, at its head, and what they name.

One statement over a set, hence one snapshot for each run at every level of isolation. Its cost does not grow with the
length of a history. Only the bodies of admissions and outcomes travel; states and registrations are hashed where they
lie.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    FromClause,
    Label,
    LargeBinary,
    Select,
    Table,
    and_,
    any_,
    bindparam,
    case,
    exists,
    func,
    literal,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.selectable import LateralFromClause

from agentruns.domain.digests import DigestPurpose
from agentruns.store.sets import POSITION, RUN, ItemSet, columns_of, materialized
from agentruns.store.tables import (
    admissions,
    checkpoints,
    events,
    keys,
    outcomes,
    quarantine_releases,
    quarantines,
    runs,
    waits,
)

#: A run by its id, or by the digest of its key; the other one is null.
ITEMS: Final = ItemSet("item", RUN | columns_of(keys.c.key_digest))

#: Columns of the rows that are read whole; each comes under the prefix that names its place.
KEY_COLUMNS: Final = ("key_digest", "submission_digest", "created_at")
EVENT_COLUMNS: Final = (
    "sequence",
    "event_id",
    "recorded_at",
    "epoch",
    "kind",
    "schema_digest",
    "data",
    "digest",
)
QUARANTINE_COLUMNS: Final = ("quarantine_id", "quarantined_at", "cause_kind", "component", "body", "digest", "epoch")
#: The trace context is no evidence and is not read.
RUN_COLUMNS: Final = tuple(column.name for column in runs.c if column.name not in (*RUN, "trace_context"))


@cache
def ends() -> Select[Any]:
    """Build the statement; bodies beyond ``maximum_bytes``, summed in the order of the items, are left out."""
    item = _located()
    run = runs.alias("run")
    admitted, attached = keys.alias("admitted"), keys.alias("attached")
    cancellation, outcome = outcomes.alias("cancellation"), outcomes.alias("outcome")
    newest = _newest_checkpoint(item)
    journal = _journal(item, run, newest, cancellation)
    outstanding = _outstanding_waits(item)
    isolation = _unreleased_quarantines(item)
    is_whole = _is_whole(item, admissions.c.body, cancellation.c.body, outcome.c.body)
    return (
        select(
            item.c[POSITION],
            func.clock_timestamp().label("now"),
            (func.current_setting("transaction_read_only") == "on").label("is_read_only"),
            item.c.run_id.label("found_run_id"),
            is_whole.label("is_whole"),
            *_prefixed("run", run, ("run_id", *RUN_COLUMNS)),
            *_prefixed("admitted", admitted, KEY_COLUMNS),
            *_prefixed("attached", attached, KEY_COLUMNS),
            *_prefixed("admission", admissions, ("agent_name", "agent_version", "admission_digest", "sequence")),
            case((is_whole, admissions.c.body)).label("admission_body"),
            *_prefixed("first", checkpoints, ("checkpoint_id", "ready", "digest", "sequence")),
            _hashed(DigestPurpose.STATE, checkpoints.c.state).label("first_state_digest"),
            *newest.c,
            *_prefixed("cancellation", cancellation, ("digest", "sequence")),
            case((is_whole, cancellation.c.body)).label("cancellation_body"),
            *_prefixed("outcome", outcome, ("digest", "sequence")),
            case((is_whole, outcome.c.body)).label("outcome_body"),
            _is_head_passed(item, run).label("is_head_passed"),
            *journal.c,
            *outstanding.c,
            *isolation.c,
        )
        .select_from(
            item.outerjoin(run, _of(run, item))
            .outerjoin(admitted, _of(admitted, item, admitted.c.origin == "admitted"))
            .outerjoin(attached, _of(attached, item, attached.c.origin == "attached"))
            .outerjoin(admissions, _of(admissions, item))
            .outerjoin(checkpoints, _of(checkpoints, item, checkpoints.c.superstep == 0))
            .outerjoin(newest, true())
            .outerjoin(cancellation, _of(cancellation, item, cancellation.c.kind == "cancellation"))
            .outerjoin(outcome, _of(outcome, item, outcome.c.kind == "outcome"))
            .outerjoin(journal, true())
            .outerjoin(outstanding, true())
            .outerjoin(isolation, true())
        )
        .order_by(item.c[POSITION])
    )


def _located() -> FromClause:
    """Find the run id of each item that came with a key."""
    item = ITEMS.source()
    by_key = keys.alias("by_key")
    located = select(
        item.c[POSITION],
        item.c.tenant_id,
        func.coalesce(item.c.run_id, by_key.c.run_id).label("run_id"),
    ).select_from(
        item.outerjoin(by_key, and_(by_key.c.tenant_id == item.c.tenant_id, by_key.c.key_digest == item.c.key_digest))
    )
    return materialized(located, "located")


def _of(table: FromClause, item: FromClause, *more: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(table.c.tenant_id == item.c.tenant_id, table.c.run_id == item.c.run_id, *more)


def _prefixed(prefix: str, table: FromClause, names: tuple[str, ...]) -> list[Label[Any]]:
    return [table.c[name].label(f"{prefix}_{name}") for name in names]


def _hashed(purpose: DigestPurpose, body: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.sha256(literal(purpose.domain, LargeBinary()).concat(body), type_=LargeBinary())


def _newest_checkpoint(item: FromClause) -> LateralFromClause:
    """Read the checkpoint of the highest superstep above 0, and the digest of its parent."""
    parent = checkpoints.alias("parent")
    newest = checkpoints.alias("checkpoint")
    parent_digest = select(parent.c.digest).where(_of(parent, newest, parent.c.superstep == newest.c.superstep - 1))
    return (
        select(
            *_prefixed("newest", newest, ("superstep", "checkpoint_id", "ready", "digest", "sequence")),
            _hashed(DigestPurpose.STATE, newest.c.state).label("newest_state_digest"),
            parent_digest.scalar_subquery().label("newest_parent_digest"),
        )
        .where(_of(newest, item, newest.c.superstep > 0))
        .order_by(newest.c.superstep.desc())
        .limit(1)
        .lateral("newest")
    )


def _journal(item: FromClause, run: FromClause, newest: FromClause, cancellation: FromClause) -> LateralFromClause:
    """Read event 1, the head, and the events that the run's row, checkpoint and cancellation name, as arrays."""
    event, previous = events.alias("event"), events.alias("previous")
    before = select(previous.c.digest).where(_of(previous, event, previous.c.sequence == event.c.sequence - 1))
    wanted = array(
        [
            literal(1, BigInteger()),
            run.c.lifecycle_sequence,
            run.c.head_sequence,
            newest.c.newest_sequence,
            cancellation.c.sequence,
        ]
    )
    return (
        select(
            *_gathered("event", event, EVENT_COLUMNS),
            func.array_agg(before.scalar_subquery()).label("event_previous"),
        )
        .where(_of(event, item, event.c.sequence == any_(wanted)))
        .lateral("journal")
    )


def _gathered(prefix: str, table: FromClause, names: tuple[str, ...]) -> list[Label[Any]]:
    """Aggregate rows to one array per column; all arrays of one query are in the same order."""
    return [func.array_agg(table.c[name]).label(f"{prefix}_{name}") for name in names]


def _outstanding_waits(item: FromClause) -> LateralFromClause:
    settled = func.num_nonnulls(waits.c.settled_sequence, waits.c.resolution, waits.c.resolution_digest)
    registered = _hashed(DigestPurpose.WAIT, waits.c.registration)
    return (
        select(
            *_gathered("wait", waits, ("wait_id", "kind", "digest", "sequence")),
            func.array_agg(registered).label("wait_registration_digest"),
            func.array_agg(settled > 0).label("wait_is_settled"),
        )
        .where(_of(waits, item, waits.c.status == "outstanding"))
        .lateral("outstanding")
    )


def _unreleased_quarantines(item: FromClause) -> LateralFromClause:
    is_released = exists(select(1).where(_of_quarantine(quarantine_releases, quarantines)))
    return (
        select(*_gathered("quarantine", quarantines, QUARANTINE_COLUMNS))
        .where(_of(quarantines, item, ~is_released))
        .lateral("isolation")
    )


def _of_quarantine(release: Table, quarantine: Table) -> ColumnElement[bool]:
    return _of(release, quarantine, release.c.quarantine_id == quarantine.c.quarantine_id)


def _is_head_passed(item: FromClause, run: FromClause) -> ColumnElement[bool]:
    above = events.alias("above")
    return exists(select(1).where(_of(above, item, above.c.sequence > run.c.head_sequence)))


def _is_whole(item: FromClause, *bodies: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether the bodies of an item still fit behind those before it; the first item's always do."""
    sizes = [func.coalesce(func.octet_length(body), 0) for body in bodies]
    total = func.sum(sum(sizes[1:], sizes[0])).over(order_by=item.c[POSITION])
    return (item.c[POSITION] == 1) | (total <= bindparam("maximum_bytes", type_=BigInteger()))
