"""Runs a gateway in the process of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Container
from dataclasses import dataclass, field

import httpx2 as httpx
import pytest

from cornserve.access import Access
from cornserve.app_host.fork_client import ForkServer
from cornserve.browser_origins import BrowserOrigins
from cornserve.control.store.base import APPS, ROUTES, Store
from cornserve.gateway.api import create_gateway
from cornserve.gateway.backend import Backend
from cornserve.gateway.http.server import HttpServer, server_config
from cornserve.gateway.live.prometheus import PrometheusServer
from cornserve.gateway.media.fetch import MediaFetcher
from cornserve.gateway.media.media_loader import MediaLoader
from cornserve.gpu_prices import GpuPrices
from cornserve.limits import Limits
from cornserve.media_allowlist import MediaAllowlist
from tests.credentials import CREDENTIALS
from tests.waiting import until


@dataclass(frozen=True)
class GatewayOptions:
    """The options of a gateway. Tests with equal options share the gateway of their module."""

    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    media_from: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    ignores_unknown_fields: bool = False
    serves_console: bool = True
    prices: GpuPrices = field(default_factory=GpuPrices)
    prometheus: PrometheusServer | None = None
    other_gateways: tuple[str, ...] = ()
    """The addresses of the other gateways of the instance."""


def with_gateway_options(options: GatewayOptions) -> pytest.MarkDecorator:
    """Runs tests with a gateway that has the options."""
    return pytest.mark.parametrize("gateway_options", [options], ids=[pytest.HIDDEN_PARAM], indirect=True)


@contextlib.asynccontextmanager
async def running_gateway(store: Store, options: GatewayOptions, fork_server: ForkServer) -> AsyncIterator[HttpServer]:
    async def no_logs(replica: str, lines: int) -> list[str]:
        return [f"{replica} wrote this"][:lines]

    listener = socket.create_server(("127.0.0.1", 0))
    own = f"127.0.0.1:{listener.getsockname()[1]}"
    app = create_gateway(
        Backend(store, no_logs),
        credentials=CREDENTIALS,
        limits=options.limits,
        read_access=lambda: options.access,
        media=MediaLoader(MediaFetcher(options.limits, MediaAllowlist.parse(options.media_from))),
        origins=BrowserOrigins.parse(options.allow_origin),
        fork_server=fork_server,
        ignores_unknown_fields=options.ignores_unknown_fields,
        serves_console=options.serves_console,
        prices=options.prices,
        prometheus=options.prometheus,
        gateways=[own, *options.other_gateways] if options.other_gateways else (),
    )
    server = HttpServer(server_config(app, options.limits))
    server.config.port = listener.getsockname()[1]
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield server
    server.should_exit = True
    await serving


@contextlib.asynccontextmanager
async def client_of(server: HttpServer) -> AsyncIterator[httpx.AsyncClient]:
    """Returns a client when the gateway is ready."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.config.port}", timeout=60, verify=False) as client:
        await until(lambda: _is_ready(client))
        yield client


async def _is_ready(client: httpx.AsyncClient) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return (await client.get("/readyz")).status_code == 200
    return False


async def delete_apps(store: Store, kept: Container[str] = ()) -> list[str]:
    """Deletes all apps but the kept ones, and their routes. Returns the names of the deleted apps."""
    apps, routes = await store.list(APPS), await store.list(ROUTES)
    deleted = [app.name for app in apps.records if app.name not in kept]
    for name in deleted:
        await store.delete(APPS, name)
    for route in routes.records:
        if route.name not in kept:
            await store.delete(ROUTES, route.name)
    return deleted


async def is_unknown(client: httpx.AsyncClient, access: Access, name: str) -> bool:
    """Returns whether the gateway has no app with the name."""
    headers = {"authorization": f"Bearer {access.api_keys[0]}"} if access.api_keys else None
    return (await client.get(f"/v1/models/{name}", headers=headers)).status_code == 404
