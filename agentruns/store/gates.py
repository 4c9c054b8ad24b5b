"""Gates: when a run opens that nobody can claim now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from agentruns.domain.digests import Digest
from agentruns.domain.scalars import TenantId
from agentruns.domain.timestamps import Timestamp
from agentruns.store.mapping import moment
from agentruns.store.sender import Sender
from agentruns.store.statements import gates as statements


class Gates:
    """Look for what opens next."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def until_next(
        self, tenants: Sequence[TenantId] | None, graph_digests: Sequence[Digest], *, since: Timestamp
    ) -> timedelta | None:
        """Say how long it is until a run of the tenants opens, of the graphs given; ``None`` when none is known.

        Args:
            tenants: whose runs; those of all tenants where none are given.
            graph_digests: of the graphs that this process has.
            since: an instant before the last claim. What has opened after it gives a time that is not above zero.
        """
        parameters: dict[str, Any] = {
            "graph_digests": [digest.raw for digest in graph_digests],
            "since": moment(since),
        }
        if tenants is None:
            statement = statements.next_gate_of_all()
        else:
            statement = statements.next_gate()
            parameters |= statements.TENANTS.parameters([(tenant.text,) for tenant in tenants])
        found: Any = self._work.execute(statement, parameters).one()
        opens_in: timedelta | None = None if found.gate is None else found.gate - found.now
        return opens_in
