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
        # The request has no name here: a client that reads slowly holds its answer only.
        response: Response = await self.endpoint(
            request=Request(scope, receive, send), context=scope["app"].state.shared, **scope.get("path_params", {})
        )
        await response(scope, receive, send)
