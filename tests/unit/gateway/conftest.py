"""A gateway with a SQLite store, and echo executors in the same process.

The store, the fork server, the gateway and its event loop live for the tests of a module that have equal options. Each
test has its own apps and executors, which are removed when it ends, or uses an app of its module.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import httpx2 as httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from cornserve.app.app import App
from cornserve.app.load import load_app
from cornserve.app.source import unload_app
from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.fork_client import ForkServer
from cornserve.control.store.base import APPS, Store
from cornserve.control.store.sqlite import SqliteStore
from cornserve.gateway.http.server import HttpServer
from tests.unit.app_host.apps import TEST_FILES
from tests.unit.conftest import QUEUE, SharedForkServerProcess
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.published_route import publish_route
from tests.unit.gateway.running_gateway import GatewayOptions, client_of, delete_apps, is_unknown, running_gateway
from tests.waiting import until


class Deploy(Protocol):
    """Deploys an app, whose code may use the paths. `fields`: further ones of its `AppSource`."""

    async def __call__(self, source: str, *, allow_paths: Sequence[str] = TEST_FILES, **fields: Any) -> None: ...


INTERVAL = 0.02
"""Seconds between two requests that check whether an app is served. A request takes milliseconds of CPU time."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if pytest_asyncio.is_async_test(item):
        item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.fixture(scope="module")
def gateway_options(request: pytest.FixtureRequest) -> GatewayOptions:
    return getattr(request, "param", GatewayOptions())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    store = await SqliteStore.open(tmp_path_factory.mktemp("store") / "state.db")
    yield store
    await store.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fork_server(fork_server_process: SharedForkServerProcess) -> AsyncIterator[ForkServer]:
    server = ForkServer(lambda: fork_server_process)
    yield server
    await server.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    module_store: Store, gateway_options: GatewayOptions, fork_server: ForkServer
) -> AsyncIterator[HttpServer]:
    async with running_gateway(module_store, gateway_options, fork_server) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_client(server: HttpServer) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(server) as client:
        yield client


@pytest.fixture(scope="module")
def kept_apps() -> set[str]:
    """The names of the apps that live as long as the module."""
    return set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deploy_for_module(
    module_store: Store, module_client: httpx.AsyncClient, kept_apps: set[str]
) -> AsyncIterator[Deploy]:
    """Deploys an app that all tests of the module share, because deploying it takes longer than most tests."""
    executors = EchoExecutors(QUEUE)

    async def deploy(source: str, *, allow_paths: Sequence[str] = TEST_FILES, **fields: Any) -> None:
        kept_apps.add(_name_of(source))
        app_source = AppSource(inline=source, allow_paths=list(allow_paths), **fields)
        await _deploy(app_source, module_store, module_client, executors)

    yield deploy
    for name in kept_apps:
        unload_app(_module_of(name))
    kept_apps.clear()
    await delete_apps(module_store)
    await executors.close()


@pytest_asyncio.fixture(loop_scope="module")
async def store(module_store: Store, kept_apps: set[str]) -> AsyncIterator[Store]:
    yield module_store
    await delete_apps(module_store, kept_apps)


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(
    module_client: httpx.AsyncClient, store: Store, kept_apps: set[str], gateway_options: GatewayOptions
) -> AsyncIterator[httpx.AsyncClient]:
    """Returns a client. Without it, the gateway is not started."""
    yield module_client
    for name in await delete_apps(store, kept_apps):
        await until(lambda name=name: is_unknown(module_client, gateway_options.access, name), interval=INTERVAL)  # type: ignore[misc]


@pytest.fixture
def openai(gateway: httpx.AsyncClient) -> AsyncOpenAI:
    """Returns OpenAI's client. It shares the HTTP client, because loading TLS certificates takes longer than a test."""
    return AsyncOpenAI(base_url=f"{gateway.base_url}/v1", api_key="none", max_retries=0, http_client=gateway)


@pytest_asyncio.fixture(loop_scope="module")
async def executors(queue: int) -> AsyncIterator[EchoExecutors]:
    executors = EchoExecutors(queue)
    yield executors
    await executors.close()


async def _is_served(client: httpx.AsyncClient, name: str) -> bool:
    return (await client.get(f"/v1/models/{name}")).status_code == 200


def _name_of(source: str) -> str:
    name: str = re.findall('[Aa]pp\\(name="(.*?)"', source)[0]
    return name


def _module_of(name: str) -> str:
    return f"{name}_of_the_test"


async def _deploy(source: AppSource, store: Store, client: httpx.AsyncClient, executors: EchoExecutors) -> None:
    """Deploys an app like a controller whose executors are all ready, and waits until the gateway serves it."""
    name = _name_of(source.inline or "")
    app_spec = AppSpec(source=source)
    app: App = await asyncio.to_thread(load_app, name, app_spec, _module_of(name))
    endpoints = {key: [await executors.endpoint(spec)] for key, spec in app.executor_specs().items()}
    record = await store.create(APPS, name, app_spec)
    await publish_route(store, record, endpoints, shares=app.shares)
    await until(lambda: _is_served(client, name), interval=INTERVAL)


@pytest_asyncio.fixture(loop_scope="module")
async def deploy(store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors) -> AsyncIterator[Deploy]:
    """Deploys an app for a test."""
    names: list[str] = []

    async def deploy(source: str, *, allow_paths: Sequence[str] = TEST_FILES, **fields: Any) -> None:
        names.append(_name_of(source))
        await _deploy(AppSource(inline=source, allow_paths=list(allow_paths), **fields), store, gateway, executors)

    yield deploy
    for name in names:
        unload_app(_module_of(name))
