"""Who calls, for which tenant, and what they may do: decided before anything is looked up.

The tokens of this module stand in for whatever issues yours, an identity provider as a rule. What must stay is that
the tenant comes from the session and never from a body, and that a refusal comes before anything could say that
something exists.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

KEEP_ORDERS = "orders:write"
ASK = "reviews:ask"
READ = "reviews:read"
WITHDRAW = "reviews:withdraw"

Sent = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Hold what the session says of a caller.

    Attributes:
        tenant: whose orders and reviews these are.
        subject: who it is, as this service calls them.
        scopes: what they may do in the tenant.
    """

    tenant: str
    subject: str = field(repr=False)
    scopes: frozenset[str]

    def may(self, scope: str) -> bool:
        """Whether the caller may do that in their tenant."""
        return scope in self.scopes


@dataclass(frozen=True, kw_only=True)
class Client:
    """Give a token the caller that it stands for."""

    token: str = field(repr=False)
    caller: Caller


def find_caller(clients: Iterable[Client], token: str) -> Caller | None:
    """Find whose token it is. Every token is compared, in constant time, so how long it takes tells nothing."""
    offered = hashlib.sha256(token.encode()).digest()
    found = None
    for client in clients:
        if secrets.compare_digest(hashlib.sha256(client.token.encode()).digest(), offered):
            found = client.caller
    return found


async def authenticated(request: Request, sent: Sent) -> Caller:
    """Answer 401 unless the token is one of ours; the answer does not say what was wrong with it."""
    caller = find_caller(request.app.state.settings.clients, sent.credentials) if sent else None
    if caller is None:
        raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})
    request.state.caller = caller
    return caller


def allowed_to(scope: str) -> Callable[[Caller], Coroutine[Any, Any, Caller]]:
    """Make a dependency that answers 403 unless the caller may do that."""

    async def check(caller: Annotated[Caller, Depends(authenticated)]) -> Caller:
        if not caller.may(scope):
            raise HTTPException(403)
        return caller

    return check
