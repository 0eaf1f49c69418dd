"""Requests that outlive the grace period of a stopping gateway."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.app_host.fork_client import ForkServer
from cornserve.control.store.base import Store
from cornserve.gateway.http.server import GRACE_SECONDS, HttpServer
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.running_gateway import GatewayOptions, client_of, running_gateway
from tests.unit.gateway.sources import ECHO, STEPS
from tests.waiting import until


@pytest_asyncio.fixture(loop_scope="module")
async def server(store: Store, fork_server: ForkServer) -> AsyncIterator[HttpServer]:
    async with running_gateway(store, GatewayOptions(), fork_server) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(server: HttpServer) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(server) as client:
        yield client


async def stop(server: HttpServer, clock: LoopClock) -> None:
    """Stops the gateway, and lets its grace period pass."""
    server.should_exit = True
    await until(lambda: not server.servers[0].is_serving())
    clock.advance(GRACE_SECONDS)


async def test_a_pending_request_gets_a_503_with_retry_after(
    gateway: httpx.AsyncClient,
    deploy: Deploy,
    executors: EchoExecutors,
    server: HttpServer,
    clock: LoopClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await deploy(STEPS)
    caplog.set_level(logging.INFO, "cornserve.access")
    request = asyncio.create_task(gateway.post("/v1/apps/steps/invoke", json={"words": ["a"], "seconds": 1000}))
    await until(lambda: executors.running() == 1)

    await stop(server, clock)

    response = await request
    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert response.json()["error"]["code"] == "stopping"
    (line,) = (record for record in caplog.records if record.name == "cornserve.access")
    assert vars(line)["fields"]["status"] == 503
    await until(lambda: executors.running() == 0)


async def test_a_stream_ends_with_an_error_event(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, server: HttpServer, clock: LoopClock
) -> None:
    await deploy(ECHO)
    body = {"text": "a " * 1000, "seconds": 100}
    headers = {"accept": "text/event-stream"}
    async with gateway.stream("POST", "/v1/apps/echo/invoke", json=body, headers=headers) as response:
        lines = response.aiter_lines()
        assert await anext(lines) == "event: item"

        await stop(server, clock)

        last = [line async for line in lines if line][-2:]
    assert last[0] == "event: error"
    assert json.loads(last[1].removeprefix("data: "))["error"]["code"] == "stopping"
    await until(lambda: executors.running() == 0)
