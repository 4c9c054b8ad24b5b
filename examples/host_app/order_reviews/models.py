"""What the service itself stores. Every table begins with the tenant, as those of the runs do."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import BigInteger, DateTime, ForeignKeyConstraint, Text, UniqueConstraint, Uuid, func
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from agentruns import RunRow


class Base(DeclarativeBase):
    """Declare a table of the service."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text(),
        int: BigInteger(),
        datetime: DateTime(timezone=True),
        list[dict[str, Any]]: JSON(),
    }


class Order(Base):
    """Hold an order as it was placed. It never changes, so what is derived from it is the same on every retry."""

    __tablename__ = "orders"

    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    reference: Mapped[str] = mapped_column(primary_key=True)
    amount_cents: Mapped[int]
    lines: Mapped[list[dict[str, Any]]]
    placed_at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class OrderReview(Base):
    """Tie an order to the run that reviews it. There is at most one."""

    __tablename__ = "order_reviews"
    __table_args__ = (
        UniqueConstraint("tenant_id", "order_reference", name="order_reviews_once_per_order"),
        ForeignKeyConstraint(
            ["tenant_id", "order_reference"], [Order.tenant_id, Order.reference], name="order_reviews_order"
        ),
        # The run belongs to another metadata, so the key names columns and not texts. It keeps the run from being
        # removed while the review stands.
        ForeignKeyConstraint(["tenant_id", "run_id"], [RunRow.tenant_id, RunRow.run_id], name="order_reviews_run"),
    )

    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(Uuid(as_uuid=False), primary_key=True)
    order_reference: Mapped[str]
    asked_by: Mapped[str]
    withdrawn_by: Mapped[str | None]
