"""Tell the workers of a schema that tenants have something for them."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from sqlalchemy import Select, Text, bindparam, func, select

from agentruns.store.sets import ItemSet

PAYLOADS: Final = ItemSet("wake_up", {"payload": Text()})


@cache
def notify() -> Select[Any]:
    """Send a notification for each payload. In a transaction of more than this it would hold up every other commit."""
    item = PAYLOADS.source()
    return select(func.pg_notify(bindparam("channel", type_=Text()), item.c.payload))
