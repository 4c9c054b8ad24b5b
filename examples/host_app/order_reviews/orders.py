"""Orders: kept as they were placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from .access import Caller
from .models import Order


class OrderNotFoundError(LookupError):
    """The caller's tenant has no such order."""


class OrderConflictError(Exception):
    """The order is there with other content, or is under review already."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


async def place(
    session: AsyncSession, caller: Caller, reference: str, *, amount_cents: int, lines: Sequence[Mapping[str, Any]]
) -> bool:
    """Keep an order, and say whether it is new. The same order again changes nothing.

    Raises:
        OrderConflictError: the reference stands for other content.
    """
    content = {"amount_cents": amount_cents, "lines": [dict(line) for line in lines]}
    added = insert(Order).values(tenant_id=caller.tenant, reference=reference, **content).on_conflict_do_nothing()
    if await session.scalar(added.returning(Order.reference)) is not None:
        return True
    kept = await get(session, caller, reference)
    if {"amount_cents": kept.amount_cents, "lines": kept.lines} != content:
        raise OrderConflictError("other_content")
    return False


async def get(session: AsyncSession, caller: Caller, reference: str) -> Order:
    """Get an order of the caller's tenant.

    Raises:
        OrderNotFoundError: there is none.
    """
    order = await session.get(Order, (caller.tenant, reference))
    if order is None:
        raise OrderNotFoundError
    return order
