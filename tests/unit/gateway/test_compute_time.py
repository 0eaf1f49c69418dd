"""The metrics of a gateway divide the time of replicas among apps."""

from __future__ import annotations

import asyncio
import re

import httpx2 as httpx
import pytest

from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import ECHO


async def _compute_seconds(gateway: httpx.AsyncClient) -> dict[str, float]:
    metrics = (await gateway.get("/metrics")).text
    pattern = r'^cornserve_gateway_compute_seconds_total\{app="(\w+)",group="echo-\w+"\} (.*)$'
    return {app: float(seconds) for app, seconds in re.findall(pattern, metrics, re.MULTILINE)}


async def test_apps_that_share_an_executor_divide_its_time(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors
) -> None:
    for name in ("often", "rarely"):
        await deploy(ECHO.replace('"echo"', f'"{name}"'))
    apps = ["often", "often", "often", "rarely"]
    body = {"text": "a", "seconds": 0.05}
    await asyncio.gather(*(gateway.post(f"/v1/apps/{app}/invoke", json=body) for app in apps))

    seconds = await _compute_seconds(gateway)

    assert all(seconds[app] > 0.01 for app in set(apps))
    assert sum(seconds.values()) == pytest.approx(executors.total("cornserve_executor_compute_seconds_total"))
