"""What stands around every request: its id, how large and how long it may be, and an answer whatever happens."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

from fastapi import HTTPException
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import incident, unavailable


class Guard:
    """Guard an application, as the outermost of its layers.

    Args:
        app: what is guarded.
        maximum_body: bytes, counted as they arrive and before anything is parsed.
        patience: how long an answer may take; then it is 503 and what was under way is cancelled.
    """

    def __init__(self, app: ASGIApp, *, maximum_body: int, patience: timedelta) -> None:
        self._app = app
        self._maximum_body = maximum_body
        self._patience = patience.total_seconds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; all else, the lifespan for one, passes through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope.setdefault("state", {})["request_id"] = uuid4().hex
        has_begun = False

        async def answer(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        try:
            async with asyncio.timeout(self._patience):
                await self._app(scope, self._bounded(receive), answer)
        except Exception as error:  # noqa: BLE001 - whatever it is, its text stays here
            response = unavailable() if isinstance(error, TimeoutError) else incident(error, request_id)
            if not has_begun:
                await response(scope, receive, answer)

    def _bounded(self, receive: Receive) -> Receive:
        left = self._maximum_body

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413)
            return message

        return counted
