"""Which rows an audit looks at, as ranges of the key that every table of a run begins with."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Self
from uuid import UUID

from attrs import evolve, field, frozen

from agentruns.domain.ids import RunId
from agentruns.domain.scalars import TenantId
from agentruns.errors import InvalidOptionError
from agentruns.runtime.arguments import check_argument
from agentruns.store.options import check_count

#: Tenant and run, compared as PostgreSQL compares them: bytes of text, then bytes of the id.
Key = tuple[str, str]

_FIRST_RUN: Final = str(UUID(int=0))
_LAST_RUN: Final = str(UUID(int=2**128 - 1))
_LAST_TENANT: Final = chr(0x10FFFF)
#: How many hashes PostgreSQL's function for ids has, from the lowest ``bigint`` on.
_HASHES: Final = 2**64
_LOWEST_HASH: Final = -(2**63)
_SEED_BITS: Final = 31


@frozen
class KeyRange:
    """Hold the keys after one, up to another.

    Attributes:
        after: the last key that is not meant.
        until: the last one that is.
    """

    after: Key
    until: Key

    @property
    def parameters(self) -> dict[str, Any]:
        """What a law's statement is sent with."""
        return {
            "after_tenant": self.after[0],
            "after_run": self.after[1],
            "until_tenant": self.until[0],
            "until_run": self.until[1],
        }


@frozen
class DrawnKeys:
    """Hold the keys of runs that were drawn, and no others.

    Attributes:
        keys: tenant and run of each.
    """

    keys: Sequence[Key]

    @property
    def parameters(self) -> dict[str, Any]:
        """What a law's statement is sent with."""
        return {"drawn_tenants": [tenant for tenant, _ in self.keys], "drawn_runs": [run for _, run in self.keys]}


@frozen(kw_only=True)
class AuditSample:
    """Draw runs at random, instead of reading all of them.

    Whether a run is drawn follows from its id and the seed alone: the same seed draws the same runs again, and one more
    time where an audit that was stopped goes on.

    Attributes:
        share: of the runs, above 0 and at most 1. Each is drawn by itself, so that their number is about that share.
        seed: 0 to 2147483647; another one each time where none is given.
    """

    share: float
    seed: int = field(factory=partial(secrets.randbits, _SEED_BITS))

    def __attrs_post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidOptionError(option="share", value=str(self.share), bound="above 0, at most 1")
        check_count("seed", self.seed, low=0, high=2**_SEED_BITS - 1)

    @property
    def parameters(self) -> dict[str, Any]:
        """What the statement that draws is sent with."""
        return {"seed": self.seed, "highest": _LOWEST_HASH + max(int(self.share * _HASHES), 1) - 1}


@frozen(kw_only=True)
class AuditScope:
    """Say what is audited: everything, a tenant, or a run of it.

    Attributes:
        tenant_id: whose rows; ``None`` for those of all tenants, and for what belongs to nobody.
        run_id: one run of the tenant.
        after_run: of a tenant, only the runs after this one, in the order of ids.
        sample: only the runs that are drawn; what belongs to no run is read all the same.
    """

    tenant_id: TenantId | None = None
    run_id: RunId | None = None
    after_run: RunId | None = None
    sample: AuditSample | None = None

    def __attrs_post_init__(self) -> None:
        kinds = {"tenant_id": TenantId, "run_id": RunId, "after_run": RunId, "sample": AuditSample}
        for name, kind in kinds.items():
            if getattr(self, name) is not None:
                check_argument(name, getattr(self, name), kind)
        if self.tenant_id is None and (self.run_id is not None or self.after_run is not None):
            raise InvalidOptionError(option="tenant_id", value="none", bound="the tenant of the run")
        if self.run_id is not None and self.after_run is not None:
            raise InvalidOptionError(option="after_run", value="a run", bound="nothing beside one run")
        if self.run_id is not None and self.sample is not None:
            raise InvalidOptionError(option="sample", value="a share", bound="nothing beside one run")

    @classmethod
    def run(cls, tenant_id: TenantId, run_id: RunId) -> Self:
        """Mean one run."""
        return cls(tenant_id=tenant_id, run_id=run_id)

    @classmethod
    def tenant(cls, tenant_id: TenantId, *, after_run: RunId | None = None, sample: AuditSample | None = None) -> Self:
        """Mean the runs of a tenant, and what it has beside them."""
        return cls(tenant_id=tenant_id, after_run=after_run, sample=sample)

    @property
    def keys(self) -> KeyRange:
        """The range of all keys that are meant."""
        if self.tenant_id is None:
            return KeyRange(("", _FIRST_RUN), (_LAST_TENANT, _LAST_RUN))
        tenant = self.tenant_id.text
        if self.run_id is not None:
            return KeyRange((tenant, str(UUID(int=UUID(self.run_id.text).int - 1))), (tenant, self.run_id.text))
        return KeyRange((tenant, self.after_run.text if self.after_run else _FIRST_RUN), (tenant, _LAST_RUN))

    def rest(self, after: Key) -> KeyRange:
        """Give the keys of the scope that come after one of them."""
        return evolve(self.keys, after=after)


#: All tenants, and what belongs to nobody.
EVERYTHING: Final = AuditScope()
