"""The gateway rejects malformed requests with a 4xx in OpenAI's format, and serves the next request."""

from __future__ import annotations

import asyncio
import logging

import httpx2 as httpx
import psutil
import pytest
import pytest_asyncio

from cornserve.limits import MIB, Limits
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.malformed_requests import BROKEN_HTTP, malformed_requests, unexpected_response
from tests.unit.gateway.raw_http import raw_connection
from tests.unit.gateway.running_gateway import GatewayOptions
from tests.unit.gateway.sources import CHAT, ECHO

AT_ONCE = 10


@pytest.fixture(scope="module")
def gateway_options() -> GatewayOptions:
    return GatewayOptions(Limits(body_mib=1))


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def apps(deploy_for_module: Deploy) -> None:
    await deploy_for_module(ECHO)
    await deploy_for_module(CHAT)


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
async def test_many_malformed_requests_are_rejected(
    gateway: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    caplog.set_level(logging.WARNING)
    requests = malformed_requests(seed=20261121, count=count)
    before = psutil.Process().memory_info().rss

    async def send_some() -> list[str]:
        return [wrong for request in requests if (wrong := await unexpected_response(gateway, request))]

    found = await asyncio.gather(*(send_some() for _ in range(AT_ONCE)))

    assert [wrong for some in found for wrong in some] == []
    assert [
        record.getMessage() for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR
    ] == []
    assert (await gateway.post("/v1/apps/echo/invoke", json={"text": "a b"})).json()["words_sent"] == 2
    assert psutil.Process().memory_info().rss - before < 100 * MIB


@pytest.mark.parametrize("data", BROKEN_HTTP)
async def test_invalid_http_is_rejected(gateway: httpx.AsyncClient, data: bytes) -> None:
    async with raw_connection(gateway) as connection:
        await connection.send(data)

        response = await connection.read_response()

    assert 400 <= response.status < 500
    assert response.message
    assert (await gateway.get("/v1/models")).status_code == 200
