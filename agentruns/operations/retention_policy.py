"""Say how long runs are kept, and how long a client may count on finding one by its key."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from attrs import frozen

from agentruns.domain.canonical import canonical_bytes
from agentruns.domain.scalars import TenantId
from agentruns.domain.status import RunStatus
from agentruns.errors import InvalidOptionError
from agentruns.store.options import check_duration
from agentruns.store.retention import Terms

SHORTEST_GUARANTEE: Final = timedelta(hours=1)
DEFAULT_GUARANTEE: Final = timedelta(days=7)
LONGEST_KEEP: Final = timedelta(days=36_525)
_SHORTER: Final = "for less make that shorter: retry_guarantee, or --retry-guarantee"
_MICROSECOND: Final = timedelta(microseconds=1)


@frozen(kw_only=True)
class RetentionPolicy:
    """Say which runs may be removed. Ages are measured by the database's clock when a run is removed.

    A run that is quarantined stays, whatever its status, unless ``include_quarantined`` says otherwise; then it is kept
    for the longest of the three durations, counted from its quarantine.

    Attributes:
        keep_succeeded: for how long after its end a run that succeeded stays; at least ``retry_guarantee``.
        keep_failed: the same for one that failed.
        keep_cancelled: the same for one that was cancelled.
        retry_guarantee: what the service promises its clients: for so long after a run has ended the same key still
            finds it, and admits no second run. At least an hour.
        include_quarantined: remove quarantined runs as well.

    Raises:
        InvalidOptionError: a duration breaks its bound.
    """

    keep_succeeded: timedelta
    keep_failed: timedelta
    keep_cancelled: timedelta
    retry_guarantee: timedelta = DEFAULT_GUARANTEE
    include_quarantined: bool = False

    def __attrs_post_init__(self) -> None:
        check_duration("retry_guarantee", self.retry_guarantee, low=SHORTEST_GUARANTEE, high=LONGEST_KEEP)
        for status, keep in self._keeps.items():
            self._check_keep(f"keep_{status}", keep)
        _check_choice("include_quarantined", self.include_quarantined)

    def _check_keep(self, option: str, keep: timedelta) -> None:
        """Refuse a keep outside its bound; whoever wants a short one learns what else has to be short."""
        if type(keep) is not timedelta or not self.retry_guarantee <= keep <= LONGEST_KEEP:
            bound = f"{self.retry_guarantee}..{LONGEST_KEEP}, from the retry guarantee up; {_SHORTER}"
            raise InvalidOptionError(option=option, value=str(keep), bound=bound)

    @property
    def canonical(self) -> bytes:
        """Canonical JSON of the policy, durations as microseconds, for the receipts."""
        durations = {f"keep_{status}": keep for status, keep in self._keeps.items()}
        durations["retry_guarantee"] = self.retry_guarantee
        micros = {name: str(duration // _MICROSECOND) for name, duration in durations.items()}
        return canonical_bytes({"include_quarantined": self.include_quarantined, **micros})

    def terms_for(self, tenant_id: TenantId) -> Terms:
        """Say what the policy means for the runs of a tenant."""
        keeps = self._keeps
        return Terms(tenant_id=tenant_id, keeps=keeps, keep_isolated=max(keeps.values()), policy=self.canonical)

    @property
    def _keeps(self) -> Mapping[RunStatus, timedelta]:
        return {
            RunStatus.SUCCEEDED: self.keep_succeeded,
            RunStatus.FAILED: self.keep_failed,
            RunStatus.CANCELLED: self.keep_cancelled,
        }


def _check_choice(option: str, value: object) -> None:
    """Refuse what is only taken for true: evidence may depend on it."""
    if type(value) is not bool:
        raise InvalidOptionError(option=option, value=ascii(value)[:64], bound="True or False")
