"""The gateway's HTTP application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from cornserve.access import Access
from cornserve.control.store.base import Store, StoreError
from cornserve.gateway.apps import SYNC_SECONDS, Apps
from cornserve.gateway.context import Context, Shared
from cornserve.gateway.endpoints import admin, native
from cornserve.gateway.endpoints.openai import chat, completions, embeddings, models
from cornserve.gateway.endpoints.openapi import ERRORS
from cornserve.gateway.endpoints.shortcut import Shortcut
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.admission import Admission
from cornserve.gateway.http.gate import Gate
from cornserve.gateway.http.guard import Guard
from cornserve.gateway.media.fetch import Fetcher
from cornserve.gateway.media.media import Media
from cornserve.gateway.observe.metrics import Metrics
from cornserve.gateway.observe.replica_metrics import ReplicaMetrics
from cornserve.gateway.replica_logs import Logs
from cornserve.gateway.request.replicas import Replicas
from cornserve.limits import Limits
from cornserve.tracebacks import clear_traceback

log = logging.getLogger(__name__)


class _Api(FastAPI):
    """Is entered through the gate, which as a middleware would stand behind others."""

    gate: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        await self.gate(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What the gate has let through."""
        await super().__call__(scope, receive, send)


def create_api(
    store: Store,
    logs: Logs,
    *,
    limits: Limits | None = None,
    access: Access | None = None,
    media: Media | None = None,
    host: str = "127.0.0.1",
    controller_metrics: str | None = None,
) -> FastAPI:
    """The application; while it runs, it follows the store.

    Args:
        host: where it is going to be reached.
    """
    admission, metrics = Admission(limits), Metrics()
    media = media or Media(Fetcher(admission.limits))
    metrics.registry.register(admission)

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        replicas = Replicas()
        apps = Apps(store, replicas, metrics)
        metrics.registry.register(ReplicaMetrics(replicas.tallies))
        api.state.shared = Shared(store, apps, replicas, metrics, logs, admission, media, controller_metrics)
        following = asyncio.create_task(apps.follow())
        try:
            with suppress(TimeoutError):  # After that, whoever comes is told that the store fails.
                await asyncio.wait_for(apps.synced.wait(), SYNC_SECONDS)
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await replicas.close()

    api = _Api(title="Cornserve", lifespan=lifespan, redirect_slashes=False)
    # Asked in this order.
    for router in (
        chat.router,
        completions.router,
        embeddings.router,
        native.router,
        models.router,
        admin.router,
    ):
        api.include_router(router, responses=ERRORS)
    api.add_api_route("/healthz", _healthz)
    api.add_api_route("/readyz", _readyz)
    api.add_api_route("/metrics", _metrics)
    api.add_exception_handler(ApiError, _on_api_error)
    api.add_exception_handler(HTTPException, _on_http_error)
    api.add_exception_handler(RequestValidationError, _on_validation_error)
    api.add_exception_handler(StoreError, _on_store_error)
    api.add_exception_handler(Exception, _on_error)
    shortcut = Shortcut(api.serve, api.routes, _on_any_error)
    api.gate = Gate(shortcut, Guard(access or Access(), host), admission, metrics.error)
    return api


async def _healthz() -> PlainTextResponse:
    """The process answers."""
    return PlainTextResponse("ok")


async def _readyz(context: Context) -> PlainTextResponse:
    """The store has been read: what is deployed is served."""
    if context.apps.synced.is_set():
        return PlainTextResponse("ok")
    return PlainTextResponse("the store has not been read yet", status_code=503)


async def _metrics(context: Context) -> Response:
    return Response(generate_latest(context.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    shared: Shared = request.app.state.shared
    shared.metrics.error(error.status, error.body.error.code)
    clear_traceback(error)
    return Response(error.content, status_code=error.status, headers=error.headers, media_type="application/json")


async def _on_any_error(request: Request, error: Exception) -> Response:
    return await (_on_api_error if isinstance(error, ApiError) else _on_error)(request, error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.scope['path']}: {error.detail}"
    return await _on_api_error(request, ApiError(error.status_code, message))


async def _on_validation_error(request: Request, error: Exception) -> Response:
    """Wrong query parameters."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    param = str(first["loc"][-1])
    return await _on_api_error(request, ApiError(400, f"{param}: {first['msg']}", param=param))


async def _on_store_error(request: Request, error: Exception) -> Response:
    log.error("%s %s: the store failed: %s", request.method, request.scope["path"], error)
    return await _on_api_error(request, ApiError(503, f"the store failed: {error}", code="store_error"))


async def _on_error(request: Request, error: Exception) -> Response:
    """What nobody foresaw. The server logs where it came from."""
    log.error("%s %s failed", request.method, request.scope["path"])
    return await _on_api_error(request, ApiError(500, "the gateway failed; its log says why", code="internal_error"))
