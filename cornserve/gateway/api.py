"""The gateway's ASGI application.

`RequestMiddleware` admits requests, `V1Router` runs the operations of `/v1`, and FastAPI serves all other requests and
the OpenAPI document.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from cornserve.access import Access
from cornserve.app.app_logs import APP_LOGS_PATH, APP_LOGS_TOKEN
from cornserve.app.arrivals import ARRIVALS_PATH, GatewayArrivals
from cornserve.app.live_figures import LIVE_TOKEN
from cornserve.app_host.fork_client import ForkServer
from cornserve.browser_origins import BrowserOrigins
from cornserve.control.store.base import StoreError
from cornserve.gateway.app_loader import AppLoader
from cornserve.gateway.app_registry import SYNC_SECONDS, AppRegistry
from cornserve.gateway.backend import Backend
from cornserve.gateway.console.middleware import ConsoleMiddleware
from cornserve.gateway.console.sessions import BrowserSessions
from cornserve.gateway.context import Context, GatewayContext
from cornserve.gateway.endpoints import admin, live, unknown_fields, v1_router
from cornserve.gateway.endpoints.error_response import error_response
from cornserve.gateway.endpoints.openai import models
from cornserve.gateway.endpoints.openapi import ERRORS, request_body
from cornserve.gateway.errors import ApiError
from cornserve.gateway.http.admission import RequestAdmission
from cornserve.gateway.http.auth import Authenticator
from cornserve.gateway.http.connection import STOPPING
from cornserve.gateway.http.head import HeadMiddleware
from cornserve.gateway.http.middleware import RequestMiddleware
from cornserve.gateway.http.server import SYNCED
from cornserve.gateway.live.cost_metrics import CostMetrics
from cornserve.gateway.live.feed import LiveFeed
from cornserve.gateway.live.peers import GatewayPeers
from cornserve.gateway.live.prometheus import PrometheusServer
from cornserve.gateway.media.fetch import MediaFetcher
from cornserve.gateway.media.media_loader import MediaLoader
from cornserve.gateway.observe.app_changes import AppChanges
from cornserve.gateway.observe.gateway_logs import GatewayLogs
from cornserve.gateway.observe.gateway_metrics import GatewayMetrics
from cornserve.gateway.observe.replica_metrics import ReplicaMetrics
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway_reader import fixed_gateways
from cornserve.gpu_prices import GpuPrices
from cornserve.limits import Limits
from cornserve.wire.credentials import ConnectionCredentials

EXPOSED_HEADERS = ("retry-after", "x-request-id", "request-id", "x-should-retry", unknown_fields.HEADER)
"""Headers of responses that the scripts of web pages may read."""

DRAWS_TOKEN = "draws"
"""The purpose of the secret with which the ids of requests determine random choices."""

NO_SECRETS: Final = Access()
"""Access without keys, for clients on the same machine."""


def create_gateway(
    backend: Backend,
    *,
    credentials: ConnectionCredentials,
    limits: Limits | None = None,
    read_access: Callable[[], Access] = lambda: NO_SECRETS,
    media: MediaLoader | None = None,
    fork_server: ForkServer | None = None,
    blocking_apps: Container[str] = (),
    host: str = "127.0.0.1",
    origins: BrowserOrigins | None = None,
    gateways: Sequence[str] = (),
    controller_metrics: str | None = None,
    ignores_unknown_fields: bool = False,
    serves_console: bool = True,
    prices: GpuPrices = GpuPrices(),  # noqa: B008 - it is frozen
    prometheus: PrometheusServer | None = None,
) -> ASGIApp:
    """Returns the application. While it runs, it follows the store.

    Args:
        credentials: for the connections to executors.
        read_access: returns the secrets of clients, which may change.
        blocking_apps: the apps that have blocked a gateway.
        host: the address that the gateway listens on.
        origins: the web pages that may call it.
        ignores_unknown_fields: whether it serves requests with fields that it does not know.
        serves_console: whether it serves the web console.
        prices: the prices of GPUs and slots.
        prometheus: the server that scrapes the metrics of the instance.
    """
    admission, metrics = RequestAdmission(limits), GatewayMetrics()
    replicas = ReplicaPool(credentials, backend.find_start_problem)
    media = media or MediaLoader(MediaFetcher(admission.limits))
    metrics.registry.register(admission)
    metrics.registry.register(ReplicaMetrics(replicas.stats, replicas.queues.lengths))
    fork_server = fork_server or ForkServer()
    loader = AppLoader(fork_server, admission.limits, blocking_apps)
    changes = AppChanges()
    apps = AppRegistry(backend.store, loader, replicas, metrics, backend.endpoints, changes)
    find_gateways = backend.find_gateways or (partial(fixed_gateways, gateways) if gateways else None)
    services = (backend.store, apps, replicas, metrics, backend.logs, admission, media, fork_server)
    context = GatewayContext(
        *services,
        gateways,
        controller_metrics,
        backend.events,
        backend.on_kubernetes,
        GatewayLogs(find_gateways, credentials.secret.token(APP_LOGS_TOKEN)),
        draw_key=credentials.secret.token(DRAWS_TOKEN).encode(),
        ignores_unknown_fields=ignores_unknown_fields,
        prices=prices,
        kill_replica=backend.kill_replica,
    )
    peers = GatewayPeers(find_gateways, credentials.secret.token(LIVE_TOKEN))
    feed = LiveFeed(context, changes, peers, prometheus)
    metrics.registry.register(CostMetrics(feed.cost_history.groups))
    router = v1_router.V1Router(HeadMiddleware(create_api(context, feed)), context)
    origins = origins or BrowserOrigins()
    authenticator = Authenticator(read_access, host, credentials.secret, origins)
    api: ASGIApp = RequestMiddleware(router, authenticator, admission, metrics.record_error)
    gateway = api
    if origins.origins:
        # Browsers ask for permission (a preflight request) without a key.
        gateway = CORSMiddleware(
            gateway,
            allow_origins=origins.origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            expose_headers=EXPOSED_HEADERS,
        )
    return (
        ConsoleMiddleware(api, BrowserSessions(read_access, credentials.secret), gateway) if serves_console else gateway
    )


def create_api(context: GatewayContext, feed: LiveFeed) -> FastAPI:
    """Returns the FastAPI application. It also documents the operations that `V1Router` runs."""

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[dict[str, object]]:
        forever = context.apps.watch_store(), feed.history.run(), feed.follow_costs()
        following = [asyncio.create_task(each) for each in forever]
        try:
            with suppress(TimeoutError):  # Requests then get a 503 until the store is read.
                async with asyncio.timeout(SYNC_SECONDS):
                    await context.apps.synced.wait()
            yield {SYNCED: context.apps.synced}
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            await context.replicas.close()
            context.apps.close()
            await context.fork_server.close()

    async def on_error(request: Request, error: Exception) -> Response:
        return error_response(error, request, context)

    errors = (ApiError, HTTPException, RequestValidationError, StoreError, Exception)
    api = FastAPI(
        title="Cornserve",
        lifespan=lifespan,
        redirect_slashes=False,
        exception_handlers=dict.fromkeys(errors, on_error),
    )
    api.state.context = context
    api.state.live = feed
    for path, handler, request, response, content_type in v1_router.OPERATIONS:
        body = request_body(request, content_type)
        api.post(path, response_model=response, openapi_extra=body, responses=ERRORS)(handler)
    api.include_router(models.router, responses=ERRORS)
    api.include_router(admin.router, responses=ERRORS)
    api.include_router(live.router, responses=ERRORS)
    api.include_router(live.internal_router)
    for path in ("/healthz", "/health", "/livez", "/ping"):
        api.add_api_route(path, _healthz)
    api.add_api_route("/readyz", _readyz)
    api.add_api_route("/version", _version)
    api.add_api_route("/metrics", _metrics)
    api.add_api_route(ARRIVALS_PATH, _arrivals, include_in_schema=False)
    api.add_api_route(f"{APP_LOGS_PATH}/{{name}}", _app_logs, include_in_schema=False)
    return api


async def _healthz() -> PlainTextResponse:
    """The gateway responds."""
    return PlainTextResponse("ok")


async def _readyz(request: Request, context: Context) -> PlainTextResponse:
    """The gateway has read the store, serves the deployed apps, and is not stopping."""
    if STOPPING in request.scope["state"]:
        return PlainTextResponse("the gateway is stopping", status_code=503)
    if context.apps.synced.is_set():
        return PlainTextResponse("ok")
    return PlainTextResponse("the store has not been read yet", status_code=503)


async def _version() -> dict[str, str]:
    """The version of the gateway."""
    return {"version": version("cornserve")}


async def _metrics(context: Context) -> Response:
    return Response(generate_latest(context.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def _arrivals(context: Context) -> GatewayArrivals:
    return context.metrics.arrivals()


async def _app_logs(name: str, context: Context, lines: int) -> list[str]:
    """The last lines that the code of an app has written in this gateway."""
    return context.app_logs.own.last(name, lines)
