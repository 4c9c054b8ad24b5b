"""Tell whoever listens that tenants have something for workers, and which runs have ended."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import Select, Text, func, select

from agentruns.store.sets import ItemSet

PAYLOADS: Final = ItemSet("wake_up", {"channel": Text(), "payload": Text()})


@cache
def notify() -> Select[Any]:
    """Send a notification for each payload. In a transaction of more than this it would hold up every other commit."""
    item = PAYLOADS.source()
    return select(func.pg_notify(item.c.channel, item.c.payload))
