"""Refuse what no lease can be asked for before anything is sent: one bad item would spoil the set it is sent with."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from agentruns.domain.digests import Digest
from agentruns.domain.ids import AttemptId, RunId
from agentruns.domain.scalars import TenantId
from agentruns.errors import InvalidOptionError
from agentruns.runtime.arguments import check_argument
from agentruns.store.options import check_count, check_duration

#: Runs of one batch claim at most.
_MAXIMUM_BATCH: Final = 64
_SHORTEST_DELAY: Final = timedelta(microseconds=1)
_LONGEST_DELAY: Final = timedelta(minutes=5)


def check_claim(tenant_id: TenantId, run_id: RunId, attempt_id: AttemptId) -> None:
    """Insist on the types of what names a run and its claim."""
    check_argument("tenant_id", tenant_id, TenantId)
    check_argument("run_id", run_id, RunId)
    check_argument("attempt_id", attempt_id, AttemptId)


def check_batch(
    tenant_id: TenantId, limit: int, attempt_ids: Sequence[AttemptId], graph_digests: Sequence[Digest]
) -> None:
    """Insist on as many different ids as runs are asked for.

    Raises:
        InvalidOptionError: ``limit`` is out of its bound, or the ids are not as many different ones.
        TypeError: something is of another type.
    """
    check_argument("tenant_id", tenant_id, TenantId)
    check_count("limit", limit, low=1, high=_MAXIMUM_BATCH)
    for attempt_id in attempt_ids:
        check_argument("attempt_ids", attempt_id, AttemptId)
    for digest in graph_digests:
        check_argument("graph_digests", digest, Digest)
    different = len(set(attempt_ids))
    if (len(attempt_ids), different) != (limit, limit):
        told = f"{len(attempt_ids)}, {different} of them different"
        raise InvalidOptionError(option="attempt_ids", value=told, bound=f"{limit} different ids")


def check_delay(delay: timedelta | None) -> None:
    """Insist that a run is left alone for a while above zero, and for 5 minutes at most."""
    if delay is not None:
        check_duration("delay", delay, low=_SHORTEST_DELAY, high=_LONGEST_DELAY)
