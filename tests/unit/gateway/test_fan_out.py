"""Requests with more independent invocations than the queues of executors take."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.gateway.request.fan_out import MAX_RUNNING
from cornserve.limits import Limits
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.running_gateway import GatewayOptions, with_gateway_options
from tests.unit.gateway.sources import STEPS
from tests.waiting import until

pytestmark = with_gateway_options(GatewayOptions(limits=Limits(run_seconds=3600)))
"""Tests advance the clock while code of the app may run, which takes real time."""

MANY = STEPS.replace("paths=[Steps()]", "paths=[Steps()], max_invocations=10000")


async def order(gateway: httpx.AsyncClient, words: int, seconds: float = 0) -> Any:
    body = {"words": [str(number) for number in range(words)], "seconds": seconds}
    response = await gateway.post("/v1/apps/steps/invoke", json=body, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()["text"].replace("* ", "").split()


async def test_a_request_with_thousands_of_invocations_ends(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(MANY)

    assert await order(gateway, 3000) == [str(number) for number in range(3000)]


async def test_a_part_of_them_runs_at_a_time(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock
) -> None:
    await deploy(MANY)
    await deploy(STEPS.replace('name="steps"', 'name="other"'))

    request = asyncio.create_task(order(gateway, MAX_RUNNING + 10, seconds=10))
    await until(lambda: executors.running() == MAX_RUNNING)
    other = await gateway.post("/v1/apps/other/invoke", json={"words": ["a"]})

    assert other.json() == {"text": "* a"}
    assert executors.running() <= MAX_RUNNING
    assert len(await clock.advance_during(request, step=1)) == MAX_RUNNING + 10


@pytest.mark.parametrize("queue", [2 * MAX_RUNNING + 10])
async def test_concurrent_requests_wait_for_room_in_the_queue(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock
) -> None:
    await deploy(MANY)

    requests = asyncio.gather(*(order(gateway, 2 * MAX_RUNNING, seconds=10) for _ in range(3)))
    refused = "cornserve_executor_invocations_total"
    await until(lambda: executors.total(refused, {"code": "RESOURCE_EXHAUSTED"}) > 0)

    results = await clock.advance_during(requests, step=1)
    assert [len(words) for words in results] == [2 * MAX_RUNNING] * 3


@pytest.mark.parametrize("queue", [1])
async def test_a_request_that_finds_a_full_queue_fails(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock
) -> None:
    await deploy(MANY)
    first = asyncio.create_task(order(gateway, 1, seconds=10))
    await until(lambda: executors.running() == 1)

    second = await gateway.post("/v1/apps/steps/invoke", json={"words": ["a", "b"]})

    assert second.status_code == 429
    assert second.json()["error"]["code"] == "resource_exhausted"
    assert await clock.advance_during(first, step=1) == ["0"]
