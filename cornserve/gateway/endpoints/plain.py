"""Routes of requests that come by the thousand."""

from __future__ import annotations

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
        response = await self._respond(scope, receive, send)
        await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> Response:
        """Apart, so that a client that reads slowly holds its answer only, and neither its request nor what was made of
        it."""
        request = Request(scope, receive, send)
        response: Response = await self.endpoint(
            request=request, context=request.app.state.shared, **request.path_params
        )
        return response
