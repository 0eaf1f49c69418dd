"""The way of requests that come by the thousand, past the layers that starlette and FastAPI have for all that an
application may be: they would cost a tenth of what a request does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fastapi import Request
from fastapi.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from cornserve.gateway.endpoints.plain import PlainRoute
from cornserve.gateway.errors import ApiError


class Shortcut:
    """Stands before an application, and runs its plain routes itself.

    Args:
        routes: the application's. Those that are plain, and have no parameters in their path, are run at once.
        explain: makes an answer of an error.
    """

    def __init__(
        self, app: ASGIApp, routes: Sequence[BaseRoute], explain: Callable[[Request, Exception], Awaitable[Response]]
    ) -> None:
        self._app = app
        self._explain = explain
        self._plain = {
            route.path: route for route in routes if isinstance(route, PlainRoute) and not route.param_convertors
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._plain.get(scope["path"]) if scope["type"] == "http" else None
        if route is None or scope["method"] not in (route.methods or ()):
            await self._app(scope, receive, send)
            return
        try:
            await route.answer(scope, receive, send)
        except Exception as error:
            response = await self._explain(Request(scope), error)
            await response(scope, receive, send)
            if not isinstance(error, ApiError):
                raise  # the server says where it came from
