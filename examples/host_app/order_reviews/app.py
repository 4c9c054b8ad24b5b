"""The service over HTTP: uvicorn --factory order_reviews.app:create_app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Path, Request, Response
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from agentruns import AgentSubmissionKey, EventId, RunId

from . import orders, problems
from .access import ASK, KEEP_ORDERS, READ, WITHDRAW, Caller, allowed_to
from .agent import deployment
from .database import in_transaction, make_engine
from .guard import Guard
from .messages import KeySent, OrderSent, Reference, ReviewAsked, ReviewShown, WithdrawalSent
from .reviews import Reviews
from .settings import Settings

routes = APIRouter()


def create_app(settings: Settings | None = None) -> FastAPI:
    """Make the application; by default its settings come from the environment."""
    chosen = settings or Settings.from_environment()
    app = FastAPI(title="Order reviews", lifespan=_lifespan)
    app.state.settings = chosen
    app.include_router(routes)
    problems.install(app)
    app.add_middleware(Guard, maximum_body=chosen.maximum_body, patience=chosen.patience)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open both: our engine, and the deployment, which verifies the schema and gives the tenants the graph."""
    settings: Settings = app.state.settings
    engine = make_engine(settings.database_url, isolation_level=settings.isolation_level)
    try:
        async with deployment.open(settings.database_url, tenant=settings.tenants) as agents:
            app.state.sessions = async_sessionmaker(engine, expire_on_commit=False)
            app.state.reviews = Reviews(app.state.sessions, agents)
            yield
    finally:
        await engine.dispose()


def _reviews(request: Request) -> Reviews:
    reviews: Reviews = request.app.state.reviews
    return reviews


def _sessions(request: Request) -> async_sessionmaker[AsyncSession]:
    sessions: async_sessionmaker[AsyncSession] = request.app.state.sessions
    return sessions


Sessions = Annotated[async_sessionmaker[AsyncSession], Depends(_sessions)]
Service = Annotated[Reviews, Depends(_reviews)]


@routes.put("/orders/{reference}", status_code=201)
async def place_order(
    *,
    caller: Annotated[Caller, Depends(allowed_to(KEEP_ORDERS))],
    sessions: Sessions,
    reference: Annotated[Reference, Path()],
    sent: OrderSent,
    response: Response,
) -> None:
    """Answer 201 once the order has committed, and 200 where it had before."""
    order = sent.model_dump()
    if not await in_transaction(sessions, lambda session: orders.place(session, caller, reference, **order)):
        response.status_code = 200


@routes.post("/reviews", status_code=201)
async def ask_for_review(
    caller: Annotated[Caller, Depends(allowed_to(ASK))], reviews: Service, asked: ReviewAsked, response: Response
) -> ReviewShown:
    """Answer 201 once row and run have committed, and 200 where they had before. Neither says that work has begun."""
    review = await reviews.ask(caller, _key(asked.submission_key), asked.order, note=asked.note)
    if not review.is_new:
        response.status_code = 200
    return ReviewShown.of(review)


@routes.get("/reviews/{run_id}")
async def show_review(
    caller: Annotated[Caller, Depends(allowed_to(READ))], reviews: Service, run_id: str
) -> ReviewShown:
    return ReviewShown.of(await reviews.read(caller, RunId(run_id)))


@routes.post("/reviews/lookup")
async def find_review(
    caller: Annotated[Caller, Depends(allowed_to(READ))], reviews: Service, sent: KeySent
) -> ReviewShown:
    return ReviewShown.of(await reviews.find(caller, _key(sent.submission_key)))


@routes.put("/reviews/{run_id}/withdrawals/{event_id}", status_code=202)
async def withdraw_review(
    *,
    caller: Annotated[Caller, Depends(allowed_to(WITHDRAW))],
    reviews: Service,
    run_id: str,
    event_id: str,
    sent: WithdrawalSent,
    response: Response,
) -> ReviewShown:
    """Answer 202 once the request has committed, and 200 where it had before. The review has not ended by that."""
    review = await reviews.withdraw(caller, RunId(run_id), EventId(event_id), reason=sent.reason)
    if not review.is_new:
        response.status_code = 200
    return ReviewShown.of(review)


def _key(sent: SecretStr) -> AgentSubmissionKey:
    return AgentSubmissionKey(sent.get_secret_value())
