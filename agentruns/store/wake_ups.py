"""Wake-ups: on which channels the workers and the waiting calls of a schema listen, and what they are told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from agentruns.store.sender import Sender
from agentruns.store.statements import wake_ups as statements

#: Says that any tenant may have something.
ANY_TENANT: Final = ""
#: More tenants than these are not told of one by one.
MOST_NAMED: Final = 16
#: So many ids, each of 36 characters and a space, are in one payload, of which the server takes 8 000 bytes.
MOST_ENDED: Final = 128


def channel_of(schema: str) -> str:
    """Name the channel on which the workers of a schema listen."""
    return f"agentruns_{schema}"


def ends_channel_of(schema: str) -> str:
    """Name the channel on which the calls of a schema listen that wait for ends; no schema's name has a colon."""
    return f"agentruns:end_{schema}"


def payloads_of(tenants: Collection[str]) -> Sequence[str]:
    """Say what a notification for each of these tenants carries: its id, or one without an id for too many."""
    return sorted(tenants) if len(tenants) <= MOST_NAMED else [ANY_TENANT]


def ends_payloads_of(runs: Collection[str]) -> Sequence[str]:
    """Say what notifications of these ends carry: the ids of the runs, many in one payload."""
    ids = sorted(runs)
    return [" ".join(ids[begin : begin + MOST_ENDED]) for begin in range(0, len(ids), MOST_ENDED)]


def runs_of(payload: str) -> Sequence[str]:
    """Read what a notification of ends carries."""
    return payload.split(" ")


class WakeUps:
    """Tell who listens that something has happened. Who does not listen then is never told."""

    def __init__(self, work: Sender) -> None:
        self._work = work

    def send(self, schema: str, tenants: Collection[str], ended: Collection[str]) -> int:
        """Tell the workers of a schema of tenants, and who waits of ends, in one statement; say how often."""
        told = [(channel_of(schema), payload) for payload in payloads_of(tenants)]
        told += [(ends_channel_of(schema), payload) for payload in ends_payloads_of(ended)]
        self._work.rows(statements.notify(), statements.PAYLOADS.parameters(told))
        return len(told)
