"""Cycles of fair scheduling: the policy of a shard, and the turns that are reserved in it."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from agentruns.domain.digests import Digest
from agentruns.domain.fairness import FairnessCycle
from agentruns.domain.ids import ReservationId
from agentruns.domain.scalars import ShardId
from agentruns.store.sender import Sender
from agentruns.store.statements import fairness as statements


@frozen(kw_only=True)
class FairReservation:
    """Say which turn of a cycle a reservation has taken.

    Attributes:
        sequence: how many reservations of the shard were made before.
        slot: the turn's place in the cycle.
    """

    reservation_id: ReservationId
    sequence: int
    slot: int


class Fairness:
    """Hold the cycles that processes share. What is reserved is spent, whatever becomes of the claim."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def publish(self, shard_id: ShardId, cycle: FairnessCycle) -> bytes | None:
        """Give a shard its policy unless it has one.

        Returns:
            The canonical bytes of the policy that stands; ``None`` when it came meanwhile, and then this is repeated.
        """
        parameters = {
            "of_shard": shard_id.text,
            "policy_bytes": cycle.policy.canonical,
            "of_policy": cycle.policy.digest.raw,
            "slots": len(cycle),
        }
        policy: bytes | None = self._work.execute(statements.publish(), parameters).scalar_one_or_none()
        return policy

    def reserve(
        self, shard_id: ShardId, policy: Digest, reservation_ids: Sequence[ReservationId], slots: Sequence[int]
    ) -> tuple[FairReservation, ...] | None:
        """Take a turn of those at ``slots`` for each reservation, or find the turns that the same list has taken.

        Returns:
            In the order of the list; empty when the same list was taken meanwhile, and then this is repeated. ``None``
            when the shard has no such policy.
        """
        parameters = {
            **statements.ASKED.parameters([(each.text,) for each in reservation_ids]),
            **statements.ELIGIBLE.parameters([(slot,) for slot in slots]),
            "of_shard": shard_id.text,
            "of_policy": policy.raw,
        }
        rows = self._work.execute(statements.reserve(), parameters).all()
        if not rows:
            return None
        return tuple(
            FairReservation(reservation_id=ReservationId(str(row.reservation_id)), sequence=row.sequence, slot=row.slot)
            for row in rows
            if row.reservation_id is not None
        )

    def passed(self, shard_id: ShardId, *, since: int, before: int) -> list[tuple[int, int]]:
        """Give sequence and slot of the reservations with a sequence from ``since`` to below ``before``, in order."""
        parameters = {"of_shard": shard_id.text, "since": since, "before": before}
        return [(row.sequence, row.slot) for row in self._work.execute(statements.passed(), parameters)]
