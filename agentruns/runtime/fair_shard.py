"""A cycle of turns that any number of processes share: who is served next, decided in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from attrs import frozen

from agentruns.domain.fairness import FairnessCycle, TenantFairnessPolicy
from agentruns.domain.ids import ReservationId
from agentruns.domain.scalars import ShardId, TenantId
from agentruns.errors import ContentionError, DeploymentError, IdConflictError, InvalidValueError
from agentruns.runtime.fair_distances import FairDistances
from agentruns.runtime.store import AgentRunStore
from agentruns.runtime.telemetry.counts import turns_reserved
from agentruns.store.fairness import FairReservation
from agentruns.store.options import check_count

#: The most reservations that are made together.
MAXIMUM_RESERVATIONS: Final = 64
#: A second reading sees what the first one waited for; more is only needed when shards are removed meanwhile.
_READINGS: Final = 3


@frozen(kw_only=True)
class FairTurn:
    """Say whose turn a reservation is.

    Attributes:
        sequence: reservations of the shard before this one.
        slot: place in the cycle.
        bound: reservations within which an eligible tenant is served.
    """

    reservation_id: ReservationId
    sequence: int
    slot: int
    tenant_id: TenantId
    bound: int


class FairShard:
    """Reserve turns in the cycle of a policy.

    A turn is spent once it is reserved, whether or not its tenant is then found to have work, and never rolled back. A
    call is repeated with the same ids when its answer is in doubt: the same list gets the same turns.
    """

    def __init__(self, store: AgentRunStore, shard_id: ShardId, policy: TenantFairnessPolicy) -> None:
        self._store = store
        self.shard_id = shard_id
        self.cycle = FairnessCycle(policy)
        self._distances = FairDistances(store, shard_id, self.cycle)

    @property
    def tenants(self) -> tuple[TenantId, ...]:
        """Everybody with a weight, in the order of their ids."""
        return tuple(self.cycle.slots)

    async def publish(self) -> None:
        """Bind the policy to the shard for ever; done already is as good.

        Raises:
            IdConflictError: ``fairness_policy``; the shard has other weights. Publish these under another shard id.
        """
        for _ in range(_READINGS):
            standing = await self._store.run(lambda work: work.fairness.publish(self.shard_id, self.cycle))
            if standing is not None:
                break
        else:
            raise ContentionError
        if standing != self.cycle.policy.canonical:
            raise IdConflictError(kind="fairness_policy", id=self.shard_id)

    async def reserve(
        self, reservation_ids: Sequence[ReservationId], eligible: Collection[TenantId]
    ) -> tuple[FairTurn, ...]:
        """Take a turn for each of 1..64 fresh ids, in their order; tenants that are not eligible are passed over.

        Args:
            reservation_ids: made once and kept over retries.
            eligible: tenants of the policy that have work, at least one.

        Raises:
            InvalidValueError: too many ids or one twice, or no tenant or one without a weight; nothing was sent.
            IdConflictError: ``reservation``; some of the ids were used before, in another list.
            DeploymentError: ``fairness_policy_not_published``.
        """
        check_count("reservations", len(reservation_ids), low=1, high=MAXIMUM_RESERVATIONS)
        if len(set(reservation_ids)) < len(reservation_ids):
            raise InvalidValueError(type_name="FairShard", reason="duplicate", path=("reservation_ids",))
        slots = self._slots_of(eligible)
        for _ in range(_READINGS):
            found = await self._store.run(
                lambda work: work.fairness.reserve(self.shard_id, self.cycle.policy.digest, reservation_ids, slots)
            )
            if found is None:
                raise DeploymentError(reason="fairness_policy_not_published")
            if found:
                turns = self._turns(reservation_ids, found)
                turns_reserved(len(turns))
                await self._distances.tell([(turn.sequence, turn.tenant_id) for turn in turns])
                return turns
        raise ContentionError

    def _slots_of(self, eligible: Collection[TenantId]) -> list[int]:
        if not set(eligible) <= self.cycle.slots.keys():
            raise InvalidValueError(type_name="FairShard", reason="unknown_tenant", path=("eligible",))
        if not eligible:
            raise InvalidValueError(type_name="FairShard", reason="empty", path=("eligible",))
        return self.cycle.slots_of(eligible)

    def _turns(self, asked: Sequence[ReservationId], found: Sequence[FairReservation]) -> tuple[FairTurn, ...]:
        if [each.reservation_id for each in found] != list(asked):
            raise IdConflictError(kind="reservation", id=found[0].reservation_id)
        return tuple(map(self._turn, found))

    def _turn(self, reserved: FairReservation) -> FairTurn:
        tenant_id = self.cycle.turns[reserved.slot]
        return FairTurn(
            reservation_id=reserved.reservation_id,
            sequence=reserved.sequence,
            slot=reserved.slot,
            tenant_id=tenant_id,
            bound=self.cycle.bounds[tenant_id],
        )
