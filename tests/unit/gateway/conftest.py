"""A gateway with a SQLite store, and echo executors in the same process."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import AsyncOpenAI

from cornserve.access import Access
from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.record import AppSpec
from cornserve.app.source import unload_app
from cornserve.app_host.fork_client import ForkServer
from cornserve.browser_origins import BrowserOrigins
from cornserve.control.store.base import APPS, Store
from cornserve.control.store.sqlite import SqliteStore
from cornserve.gateway.api import create_gateway
from cornserve.gateway.backend import Backend
from cornserve.gateway.http.server import HttpServer, server_config
from cornserve.gateway.media.fetch import MediaFetcher
from cornserve.gateway.media.media_loader import MediaLoader
from cornserve.limits import Limits
from cornserve.media_allowlist import MediaAllowlist
from tests.credentials import CREDENTIALS
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.published_route import publish_route
from tests.waiting import until

Deploy = Callable[[str], Awaitable[None]]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path / "state.db")
    yield store
    await store.close()


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def access() -> Access:
    return Access()


@pytest.fixture
def media_from() -> list[str]:
    return []


@pytest.fixture
def allow_origin() -> list[str]:
    return []


@pytest.fixture
def ignores_unknown_fields() -> bool:
    return False


@pytest.fixture
async def server(
    store: Store,
    limits: Limits,
    access: Access,
    media_from: list[str],
    allow_origin: list[str],
    ignores_unknown_fields: bool,
    fork_server: ForkServer,
) -> AsyncIterator[HttpServer]:
    async def no_logs(replica: str, lines: int) -> list[str]:
        return [f"{replica} wrote this"][:lines]

    listener = socket.create_server(("127.0.0.1", 0))
    media = MediaLoader(MediaFetcher(limits, MediaAllowlist.parse(media_from)))
    app = create_gateway(
        Backend(store, no_logs),
        credentials=CREDENTIALS,
        limits=limits,
        access=access,
        media=media,
        origins=BrowserOrigins.parse(allow_origin),
        fork_server=fork_server,
        ignores_unknown_fields=ignores_unknown_fields,
    )
    server = HttpServer(server_config(app, limits))
    server.config.port = listener.getsockname()[1]
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield server
    server.should_exit = True
    await serving


@pytest.fixture
async def gateway(server: HttpServer) -> AsyncIterator[httpx.AsyncClient]:
    url = f"http://127.0.0.1:{server.config.port}"
    async with httpx.AsyncClient(base_url=url, timeout=60, verify=False) as client:
        await until(lambda: _is_ready(client))
        yield client


@pytest.fixture
def openai(gateway: httpx.AsyncClient) -> AsyncOpenAI:
    """Returns OpenAI's client. It shares the HTTP client, because loading TLS certificates takes longer than a test."""
    return AsyncOpenAI(base_url=f"{gateway.base_url}/v1", api_key="none", max_retries=0, http_client=gateway)


async def _is_ready(client: httpx.AsyncClient) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return (await client.get("/readyz")).status_code == 200
    return False


async def _is_served(client: httpx.AsyncClient, name: str) -> bool:
    return (await client.get(f"/v1/models/{name}")).status_code == 200


@pytest.fixture
async def deploy(store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors) -> AsyncIterator[Deploy]:
    """Deploys an app like a controller whose executors are all ready, and waits until the gateway serves it."""
    modules: list[str] = []

    async def deploy(source: str) -> None:
        name = re.findall('[Aa]pp\\(name="(.*?)"', source)[0]
        modules.append(f"{name}_of_the_test")
        app_spec = AppSpec(source=source)
        app: App = await asyncio.to_thread(load_app, name, app_spec, modules[-1])
        endpoints = {key: [await executors.endpoint(spec)] for key, spec in app.executor_specs().items()}
        record = await store.create(APPS, name, app_spec)
        await publish_route(store, record, endpoints, shares=app.shares)
        await until(lambda: _is_served(gateway, name))

    yield deploy
    for module in modules:
        unload_app(module)
