"""Fair shares: tenants in a cycle of weighted turns, and how long each of them waits for one at most."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice, pairwise
from typing import ClassVar, Final, Self

from attrs import field, frozen

from agentruns.domain.digests import DigestPurpose
from agentruns.domain.kept import KeptBytes
from agentruns.domain.members import check_bound, check_members
from agentruns.domain.scalars import TenantId
from agentruns.errors import InvalidValueError

ALGORITHM: Final = "smooth_weighted_round_robin_v1"
MAXIMUM_TENANTS: Final = 1_024
MAXIMUM_WEIGHT: Final = 1_024
#: The longest cycle: the greatest sum of weights.
MAXIMUM_CYCLE: Final = 4_096


@frozen(kw_only=True)
class TenantWeight:
    """Give a tenant its share of a cycle.

    Attributes:
        weight: its turns in each cycle, 1..1 024.
    """

    tenant_id: TenantId
    weight: int = field(metadata={"decimal": True})

    def __attrs_post_init__(self) -> None:
        check_members(self)
        check_bound(self, "weight", 1, MAXIMUM_WEIGHT)


@frozen(kw_only=True)
class TenantFairnessPolicy(KeptBytes):
    """State the shares of the tenants of a shard, for ever: other weights are another shard.

    Attributes:
        tenants: 1..1 024, ascending by id, with a total weight of at most 4 096; :meth:`of` sorts.
        algorithm: how the cycle is made from the weights; there is one.
    """

    tenants: tuple[TenantWeight, ...]
    algorithm: str = ALGORITHM

    digest_purpose: ClassVar[DigestPurpose] = DigestPurpose.FAIRNESS_POLICY
    max_wire_bytes: ClassVar[int] = 262_144

    def __attrs_post_init__(self) -> None:
        check_members(self)
        if self.algorithm != ALGORITHM:
            raise _refused("unsupported_algorithm", "algorithm")
        if not 1 <= len(self.tenants) <= MAXIMUM_TENANTS:
            raise _refused("too_long" if self.tenants else "empty", "tenants")
        for index, (before, after) in enumerate(pairwise(self.tenants), start=1):
            if before.tenant_id >= after.tenant_id:
                reason = "duplicate" if before.tenant_id == after.tenant_id else "not_ascending"
                raise _refused(reason, "tenants", index)
        if sum(each.weight for each in self.tenants) > MAXIMUM_CYCLE:
            raise _refused("out_of_range", "tenants")

    @classmethod
    def of(cls, weights: Mapping[TenantId, int] | Mapping[str, int]) -> Self:
        """Sort tenants, or their texts, with their weights.

        Raises:
            InvalidValueError: what the class refuses.
        """
        named = [(each if isinstance(each, TenantId) else TenantId(each), weight) for each, weight in weights.items()]
        return cls(tenants=tuple(TenantWeight(tenant_id=tenant, weight=weight) for tenant, weight in sorted(named)))


class FairnessCycle:
    """Lay a policy out as turns: each tenant has exactly as many as its weight, as evenly apart as can be.

    The turns are those of smooth weighted round robin. Every turn adds its weight to each tenant's score; the highest
    score, of equals the smallest id, takes the turn and pays the sum of all weights for it.
    """

    def __init__(self, policy: TenantFairnessPolicy) -> None:
        self.policy = policy
        #: The tenant of each slot.
        self.turns: tuple[TenantId, ...] = tuple(_turns(policy))

    def __len__(self) -> int:
        return len(self.turns)

    @cached_property
    def slots(self) -> Mapping[TenantId, tuple[int, ...]]:
        """The slots of each tenant, ascending."""
        found: dict[TenantId, list[int]] = {each.tenant_id: [] for each in self.policy.tenants}
        for slot, tenant_id in enumerate(self.turns):
            found[tenant_id].append(slot)
        return {tenant_id: tuple(slots) for tenant_id, slots in found.items()}

    @cached_property
    def bounds(self) -> Mapping[TenantId, int]:
        """How many reservations of the shard may pass until an eligible tenant is taken, counting that one.

        It is the widest gap between two slots of the tenant, around the end of the cycle too, whatever others do.
        """
        return {tenant_id: _widest_gap(slots, len(self)) for tenant_id, slots in self.slots.items()}

    def slots_of(self, tenants: Iterable[TenantId]) -> list[int]:
        """Give all slots of some tenants, ascending."""
        return sorted(slot for tenant_id in tenants for slot in self.slots[tenant_id])

    def walk(self, next_slot: int, eligible: Iterable[TenantId], count: int) -> list[int]:
        """Take ``count`` turns from ``next_slot`` on, passing over who is not eligible: what a reservation does."""
        slots = self.slots_of(eligible)
        first = bisect_left(slots, next_slot)
        return list(islice(_around(slots, first), count))


def _turns(policy: TenantFairnessPolicy) -> Iterator[TenantId]:
    weights = [each.weight for each in policy.tenants]
    total, scores = sum(weights), [0] * len(weights)
    for _ in range(total):
        scores = [score + weight for score, weight in zip(scores, weights, strict=True)]
        # The first of equals is the smallest id, since the tenants ascend.
        taken = scores.index(max(scores))
        scores[taken] -= total
        yield policy.tenants[taken].tenant_id


def _widest_gap(slots: tuple[int, ...], length: int) -> int:
    return max(after - before for before, after in pairwise((*slots, slots[0] + length)))


def _around(slots: list[int], first: int) -> Iterator[int]:
    while slots:
        yield from slots[first:]
        first = 0


def _refused(reason: str, *path: str | int) -> InvalidValueError:
    return InvalidValueError(type_name="TenantFairnessPolicy", reason=reason, path=path)
