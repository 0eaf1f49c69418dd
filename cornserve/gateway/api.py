"""The gateway's HTTP application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from cornserve.control.store.base import Store, StoreError
from cornserve.gateway import admin, native
from cornserve.gateway.apps import Apps
from cornserve.gateway.context import Context, Shared
from cornserve.gateway.errors import ApiError
from cornserve.gateway.logs import Logs
from cornserve.gateway.metrics import Metrics
from cornserve.gateway.openai import chat, models
from cornserve.gateway.replica import Replicas

log = logging.getLogger(__name__)


def create_api(store: Store, logs: Logs) -> FastAPI:
    """The application; while it runs, it follows the store."""

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        replicas = Replicas()
        apps = Apps(store, replicas)
        api.state.shared = Shared(store, apps, replicas, Metrics(), logs)
        following = asyncio.create_task(apps.follow())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await replicas.close()

    api = FastAPI(title="Cornserve", lifespan=lifespan)
    for router in (models.router, chat.router, native.router, admin.router):
        api.include_router(router)
    api.add_api_route("/healthz", _healthz)
    api.add_api_route("/readyz", _readyz)
    api.add_api_route("/metrics", _metrics)
    api.add_exception_handler(ApiError, _on_api_error)
    api.add_exception_handler(HTTPException, _on_http_error)
    api.add_exception_handler(RequestValidationError, _on_validation_error)
    api.add_exception_handler(StoreError, _on_store_error)
    api.add_exception_handler(Exception, _on_error)
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
    headers = {"retry-after": "1"} if error.status in (429, 503) else None
    return JSONResponse(error.body.model_dump(), status_code=error.status, headers=headers)


async def _on_http_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses: unknown paths and methods."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return await _on_api_error(request, ApiError(error.status_code, message))


async def _on_validation_error(request: Request, error: Exception) -> Response:
    """Wrong query parameters."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    param = str(first["loc"][-1])
    return await _on_api_error(request, ApiError(400, f"{param}: {first['msg']}", param=param))


async def _on_store_error(request: Request, error: Exception) -> Response:
    log.error("%s %s: the store failed: %s", request.method, request.url.path, error)
    return await _on_api_error(request, ApiError(503, f"the store failed: {error}", code="store_error"))


async def _on_error(request: Request, error: Exception) -> Response:
    """What nobody foresaw. Its message is for the log only, in which the server adds the traceback."""
    log.error("%s %s failed: %r", request.method, request.url.path, error)
    return await _on_api_error(request, ApiError(500, "the gateway failed; its log says why", code="internal_error"))
