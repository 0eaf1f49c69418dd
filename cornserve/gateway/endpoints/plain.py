"""Routes of requests that come by the thousand."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send


class PlainRoute(APIRoute):
    """FastAPI documents it, and starlette runs it: what resolves dependencies would cost a fifth of a request.

    The handler is called with `request`, `context` and the path's parameters, all as they are.
    """

    def __init__(self, path: str, endpoint: Any, **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = self.answer

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.response(scope, receive, send)
        await response(scope, receive, send)

    def response(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[Response]:
        """To be awaited apart from what it sends: a client that reads slowly then holds its answer only, and neither
        its request nor what was made of it."""
        response: Awaitable[Response] = self.endpoint(
            request=Request(scope, receive, send), context=scope["app"].state.shared, **scope.get("path_params", {})
        )
        return response
