"""Wake-ups: on which channel the workers of a schema listen, and what they are told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from agentruns.store.sender import Sender
from agentruns.store.statements import wake_ups as statements

#: Says that any tenant may have something.
ANY_TENANT: Final = ""
#: More tenants than these are not told of one by one.
MOST_NAMED: Final = 16


def channel_of(schema: str) -> str:
    """Name the channel of a schema."""
    return f"agentruns_{schema}"


def payloads_of(tenants: Collection[str]) -> Sequence[str]:
    """Say what a notification for each of these tenants carries: its id, or one without an id for too many."""
    return sorted(tenants) if len(tenants) <= MOST_NAMED else [ANY_TENANT]


class WakeUps:
    """Tell workers that tenants may have a run for them. Who does not listen then is never told."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def send(self, schema: str, tenants: Collection[str]) -> None:
        """Tell the workers of a schema, in one statement."""
        parameters = statements.PAYLOADS.parameters([(payload,) for payload in payloads_of(tenants)])
        self._work.execute(statements.notify(), {"channel": channel_of(schema), **parameters})
