"""What the service does: have orders reviewed, show the reviews, and withdraw them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from agentruns import (
    AgentRunSnapshot,
    AgentSubmissionKey,
    EventId,
    MutationOutcome,
    OpenDeployment,
    RunId,
    RunNotFoundError,
    TenantId,
)

from . import orders
from .access import Caller
from .database import in_transaction
from .models import OrderReview
from .orders import OrderConflictError
from .requests import review_request, withdrawal


@dataclass(frozen=True, kw_only=True)
class Review:
    """Show a review: the order and the run.

    Attributes:
        is_new: whether this call has changed anything.
    """

    order: str
    run: AgentRunSnapshot
    is_new: bool = False


class Reviews:
    """Have orders reviewed, each caller within their tenant. Who may do what was decided before.

    Args:
        sessions: of our own engine.
        agents: the open deployment.
    """

    def __init__(self, sessions: async_sessionmaker[AsyncSession], agents: OpenDeployment) -> None:
        self._sessions = sessions
        self._agents = agents
        self._runs = agents.runs

    async def ask(self, caller: Caller, key: AgentSubmissionKey, reference: str, *, note: str) -> Review:
        """Have an order reviewed: our row and the run, together or neither.

        Ask again with the same key for as long as there is no answer.

        Raises:
            OrderNotFoundError: the tenant has no such order.
            OrderConflictError: another key has asked for its review.
            AgentRunsError: as :meth:`DurableAgentRuns.submit`.
        """

        async def work(session: AsyncSession) -> Review:
            order = await orders.get(session, caller, reference)
            request = review_request(self._agents, caller, order, note=note)
            admitted = await self._runs.submit(key, request, session=session)
            is_new = admitted.outcome is MutationOutcome.COMMITTED
            if is_new:  # our row is made with the run's id, and is there already when the run is
                await _add(session, caller, reference, admitted.snapshot.provenance.run_id)
            return Review(order=reference, run=admitted.snapshot, is_new=is_new)

        return await in_transaction(self._sessions, work)

    async def read(self, caller: Caller, run_id: RunId) -> Review:
        """Read a review.

        Raises:
            RunNotFoundError: unknown, or another tenant's.
        """
        reference = await in_transaction(self._sessions, lambda session: _order_of(session, caller, run_id))
        return Review(order=reference, run=await self._runs.load(TenantId(caller.tenant), run_id))

    async def find(self, caller: Caller, key: AgentSubmissionKey) -> Review:
        """Find the review that a key stands for.

        Raises:
            AgentSubmissionNotFoundError: the tenant has none.
        """
        snapshot = await self._runs.load_by_key(TenantId(caller.tenant), key)
        return await self.read(caller, snapshot.provenance.run_id)

    async def withdraw(self, caller: Caller, run_id: RunId, event_id: EventId, *, reason: str) -> Review:
        """Ask for the end of a review. Ask again with the same event id for as long as there is no answer.

        Raises:
            RunNotFoundError: unknown, or another tenant's.
            AgentRunsError: as :meth:`DurableAgentRuns.request_cancellation`.
        """

        async def work(session: AsyncSession) -> Review:
            reference = await _order_of(session, caller, run_id)
            asked = await self._runs.request_cancellation(
                TenantId(caller.tenant),
                run_id,
                event_id=event_id,
                failure=withdrawal(event_id, reason),
                session=session,
            )
            is_new = asked.outcome is MutationOutcome.COMMITTED
            if is_new:
                ours = update(OrderReview).filter_by(tenant_id=caller.tenant, run_id=run_id.text)
                await session.execute(ours.values(withdrawn_by=caller.subject))
            return Review(order=reference, run=asked.snapshot, is_new=is_new)

        return await in_transaction(self._sessions, work)


async def _order_of(session: AsyncSession, caller: Caller, run_id: RunId) -> str:
    """Tell which order a run reviews. A run of the tenant's that reviews none is not ours to show."""
    ours = select(OrderReview.order_reference).filter_by(tenant_id=caller.tenant, run_id=run_id.text)
    reference = await session.scalar(ours)
    if reference is None:
        raise RunNotFoundError(tenant_id=TenantId(caller.tenant), id=run_id)
    return reference


async def _add(session: AsyncSession, caller: Caller, reference: str, run_id: RunId) -> None:
    """Tie the order to its run. Leaving by the error takes the run along: the transaction is rolled back."""
    row = {"tenant_id": caller.tenant, "run_id": run_id.text, "asked_by": caller.subject}
    once = insert(OrderReview).values(**row, order_reference=reference)
    once = once.on_conflict_do_nothing(constraint="order_reviews_once_per_order")
    if await session.scalar(once.returning(OrderReview.run_id)) is None:
        raise OrderConflictError("under_review")
