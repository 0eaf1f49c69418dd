"""Bursts of requests, disconnects and connections."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack

import httpx2 as httpx
import psutil
import pytest

from cornserve.limits import MIB, Limits
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.raw_http import RawConnection, post, raw_connection
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

INVOKE = "/v1/apps/echo/invoke"
MAX_CANCEL_SECONDS = 1.0
"""The limit on the CPU time of this process, which does not depend on other processes."""


def _request(body: bytes, *headers: str) -> bytes:
    return post(INVOKE, f"Content-Length: {len(body)}", *headers) + body


async def test_two_hundred_streams_whose_clients_disconnect_are_cancelled_within_a_second(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors
) -> None:
    await deploy(ECHO)
    endless = _request(b'{"text": "%s", "seconds": 100}' % (b"word " * 1_000), "Accept: text/event-stream")
    async with AsyncExitStack() as connections:
        clients = [await connections.enter_async_context(raw_connection(gateway)) for _ in range(200)]
        await asyncio.gather(*(client.send(endless) for client in clients))
        await asyncio.gather(*(client.reader.readuntil(b"event: item") for client in clients))
        assert executors.running() == 200
        disconnected = time.process_time()

    await until(lambda: executors.running() == 0)
    assert time.process_time() - disconnected < MAX_CANCEL_SECONDS
    metrics = (await gateway.get("/metrics")).text
    assert 'cornserve_gateway_requests_running{app="echo"} 0.0' in metrics
    assert "cornserve_gateway_http_requests_in_flight 0.0" in metrics
    assert "cornserve_gateway_body_bytes 0.0" in metrics


@with_gateway_options(GatewayOptions(Limits(in_flight=50)))
class TestBurst:
    @pytest.mark.parametrize("clients", [80, pytest.param(250, marks=pytest.mark.slow)])
    async def test_thousands_of_concurrent_requests_are_served_or_rejected_in_bounded_memory(
        self, gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clients: int
    ) -> None:
        await deploy(ECHO)
        quick = _request(b'{"text": "a b"}')
        before = psutil.Process().memory_info().rss

        async def client() -> list[int]:
            async with raw_connection(gateway) as connection:
                return [await _status(connection, quick) for _ in range(40)]

        responses = await asyncio.gather(*(client() for _ in range(clients)))
        statuses = Counter(status for of_client in responses for status in of_client)

        assert statuses.total() == 40 * clients
        assert set(statuses) == {200, 429}
        assert psutil.Process().memory_info().rss - before < 100 * MIB
        assert (await gateway.post(INVOKE, json={"text": "a b"})).json()["words_sent"] == 2


async def _status(connection: RawConnection, request: bytes) -> int:
    await connection.send(request)
    return (await connection.read_response()).status
