"""Publish the policy of a shard of fair scheduling, and reserve turns in its cycle."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Integer,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    exists,
    func,
    literal,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import BYTEA, insert

from agentruns.store.sets import POSITION, ItemSet, materialized
from agentruns.store.tables import reservations, shards

ASKED: Final = ItemSet("asked", {"reservation_id": reservations.c.reservation_id.type})
ELIGIBLE: Final = ItemSet("eligible", {"slot": Integer()})

_KEY: Final = [reservations.c.shard_id, reservations.c.reservation_id]
_MADE: Final = [*_KEY, reservations.c.sequence, reservations.c.slot, reservations.c.reserved_at]


def _shard_id() -> ColumnElement[str]:
    # No parameter has the name of a column: an update would set the column to it.
    return bindparam("of_shard", type_=Text())


@cache
def publish() -> CompoundSelect[Any]:
    """Give a shard its policy unless it has one; answer the one that stands.

    Nothing is answered when another transaction has published meanwhile: sent again, the statement sees it.
    """
    given = {
        shards.c.shard_id: _shard_id(),
        shards.c.policy: bindparam("policy_bytes", type_=BYTEA()),
        shards.c.policy_digest: bindparam("of_policy", type_=BYTEA()),
        shards.c.cycle_length: bindparam("slots", type_=Integer()),
        shards.c.next_slot: literal(0),
        shards.c.next_sequence: literal(0),
    }
    inserted = insert(shards).values(given).on_conflict_do_nothing().returning(shards.c.policy).cte("inserted")
    return union_all(
        select(inserted.c.policy),
        select(shards.c.policy).where(shards.c.shard_id == _shard_id(), ~exists(select(inserted.c.policy))),
    )


@cache
def reserve() -> Select[Any]:
    """Take a turn for each reservation, from the shard's place on; answer those that were made, now or before.

    The shard's row is locked first, and moves by what was inserted. A list that is sent twice at once inserts once: its
    first reservation decides, and the rest follow it, so that sequences have no gap.
    """
    shard = _locked_shard()
    asked = ASKED.source()
    known = (
        select(asked.c[POSITION], *_MADE)
        .join_from(asked, reservations, reservations.c.reservation_id == asked.c.reservation_id)
        .where(reservations.c.shard_id == _shard_id())
        .cte("known")
    )
    picks = _picks(shard, known)
    first = _inserted(picks, picks.c[POSITION] == 1, "first", may_exist=True)
    is_first = exists(select(first.c.sequence))
    rest = _inserted(picks, and_(picks.c[POSITION] > 1, is_first), "rest", may_exist=False)
    made = union_all(*(select(*(each.c[column.name] for column in _MADE)) for each in (known, first, rest))).cte("made")
    return (
        select(made.c.reservation_id, made.c.sequence, made.c.slot, shard.c.next_slot)
        .select_from(shard.outerjoin(made, true()))
        .order_by(made.c.sequence)
        .add_cte(_moved(picks, is_first).cte("moved"))
    )


@cache
def passed() -> Select[Any]:
    """Read a range of the reservations of a shard, in the order in which they were made."""
    sequence = reservations.c.sequence
    since, before = (bindparam(name, type_=BigInteger()) for name in ("since", "before"))
    return (
        select(sequence, reservations.c.slot)
        .where(reservations.c.shard_id == _shard_id(), sequence >= since, sequence < before)
        .order_by(sequence)
    )


def _locked_shard() -> CTE:
    return materialized(
        select(shards.c.shard_id, shards.c.cycle_length, shards.c.next_slot, shards.c.next_sequence)
        .where(shards.c.shard_id == _shard_id(), shards.c.policy_digest == bindparam("of_policy", type_=BYTEA()))
        .with_for_update(key_share=True),
        "shard",
    )


def _picks(shard: CTE, known: CTE) -> CTE:
    """Deal the eligible slots in the order of the cycle from the shard's place on, again and again."""
    asked, eligible = ASKED.source(), ELIGIBLE.source()
    distance = (eligible.c.slot - shard.c.next_slot + shard.c.cycle_length) % shard.c.cycle_length
    ranked = (
        select(
            eligible.c.slot,
            (func.row_number().over(order_by=distance) - 1).label("place"),
            func.count().over().label("places"),
        )
        .join_from(eligible, shard, true())
        .cte("ranked")
    )
    turn = asked.c[POSITION] - 1
    return materialized(
        select(
            asked.c[POSITION],
            shard.c.shard_id,
            asked.c.reservation_id,
            (shard.c.next_sequence + turn).label("sequence"),
            ranked.c.slot,
            func.clock_timestamp().label("reserved_at"),
        )
        .join_from(asked, shard, true())
        .join(ranked, ranked.c.place == turn % ranked.c.places)
        .where(~exists(select(known.c.sequence))),
        "picks",
    )


def _inserted(picks: CTE, which: ColumnElement[bool], name: str, *, may_exist: bool) -> CTE:
    rows = select(*(picks.c[column.name] for column in _MADE)).where(which)
    statement = insert(reservations).from_select([column.name for column in _MADE], rows)
    if may_exist:
        statement = statement.on_conflict_do_nothing(index_elements=_KEY)
    return statement.returning(*_MADE).cte(name)


def _moved(picks: CTE, is_first: ColumnElement[bool]) -> Update:
    """Move the shard behind the last of the turns that were taken."""
    last = select(picks.c.slot).order_by(picks.c[POSITION].desc()).limit(1).scalar_subquery()
    count = select(func.count()).select_from(picks).scalar_subquery()
    return (
        update(shards)
        .where(shards.c.shard_id == _shard_id(), is_first)
        .values(
            {
                shards.c.next_slot: (last + 1) % shards.c.cycle_length,
                shards.c.next_sequence: shards.c.next_sequence + count,
            }
        )
        .returning(shards.c.next_slot)
    )
