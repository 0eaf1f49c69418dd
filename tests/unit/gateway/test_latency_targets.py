"""Apps with latency targets: early refusal under overload. `policies/test_admission.py` simulates the attainment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2 as httpx
import pytest_asyncio

from cornserve.app.load import load_app
from cornserve.app.settings import AppPolicies, LatencyTargetSettings
from cornserve.app.source import unload_app
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.store.base import APPS, Store
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.metrics import exposes
from tests.unit.gateway.published_route import publish_route
from tests.unit.gateway.sources import CHAT, ECHO
from tests.waiting import until

SERVICE_SECONDS = 0.05
TARGET_SECONDS = 0.5
OVERLOAD = 20
"""Requests that the executor serves in twice the time of the target."""

STAGES = f"""
from cornserve import App
from cornserve_echo.stages import StageTask

app = App(name="stages", paths=[StageTask(seconds={{"llm": {SERVICE_SECONDS}}})])
"""

DeployWithTargets = Callable[[str, str, LatencyTargetSettings], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="module")
async def deploy_with(
    store: Store, gateway: httpx.AsyncClient, executors: EchoExecutors
) -> AsyncIterator[DeployWithTargets]:
    modules: list[str] = []

    async def is_served(name: str) -> bool:
        return (await gateway.get(f"/v1/models/{name}")).status_code == 200

    async def deploy(name: str, source: str, targets: LatencyTargetSettings) -> None:
        spec = AppSpec(source=AppSource(inline=source), policies=AppPolicies(targets=targets))
        modules.append(f"{name}_with_targets")
        app = await asyncio.to_thread(load_app, name, spec, modules[-1])
        endpoints = {key: [await executors.endpoint(executor)] for key, executor in app.executor_specs().items()}
        await publish_route(store, await store.create(APPS, name, spec), endpoints, shares=app.shares)
        await until(lambda: is_served(name))

    yield deploy
    for module in modules:
        unload_app(module)


async def send(gateway: httpx.AsyncClient, count: int) -> list[httpx.Response]:
    """Sends requests at the same time. The executor runs them one after the other."""
    request = {"items": {"llm": 1}}
    return await asyncio.gather(*(gateway.post("/v1/apps/stages/invoke", json=request) for _ in range(count)))


async def test_under_overload_requests_that_would_miss_the_target_are_refused(
    gateway: httpx.AsyncClient, deploy_with: DeployWithTargets
) -> None:
    await deploy_with("stages", STAGES, LatencyTargetSettings(end_to_end_seconds=TARGET_SECONDS, admission=True))

    first = await send(gateway, OVERLOAD)
    second = await send(gateway, OVERLOAD)

    assert {response.status_code for response in first} == {200}  # nothing is known yet
    assert {response.status_code for response in second} == {200, 429}
    response = next(response for response in second if response.status_code == 429)
    assert response.headers["retry-after"].isdigit()
    assert response.json()["error"]["code"] == "target_unreachable"
    assert "the e2e target of 'stages'" in response.json()["error"]["message"]
    assert await exposes(gateway, 'cornserve_gateway_refused_requests_total{app="stages",target="e2e"} ')

    for _ in range(5):  # the load has fallen
        [response] = await send(gateway, 1)
        assert response.status_code == 200


async def test_without_admission_requests_are_only_counted(
    gateway: httpx.AsyncClient, deploy_with: DeployWithTargets
) -> None:
    await deploy_with("stages", STAGES, LatencyTargetSettings(end_to_end_seconds=TARGET_SECONDS))

    for _ in range(2):
        assert {response.status_code for response in await send(gateway, OVERLOAD)} == {200}
    assert await exposes(gateway, 'met="false",target="e2e",type=""}')


async def test_streams_are_compared_with_ttft_and_tbt(
    gateway: httpx.AsyncClient, deploy_with: DeployWithTargets
) -> None:
    targets = LatencyTargetSettings(ttft_seconds=60, tbt_seconds=0.001, end_to_end_seconds=60)
    await deploy_with("parrot", CHAT, targets)
    chat = {"model": "parrot", "messages": [{"role": "user", "content": "one two three four"}]}

    await gateway.post("/v1/chat/completions", json=chat | {"stream": True})
    await gateway.post("/v1/chat/completions", json=chat)

    counted = 'cornserve_gateway_target_requests_total{app="parrot",met="%s",target="%s",type=""} %s'
    assert await exposes(gateway, counted % ("true", "ttft", "1.0"))
    assert await exposes(gateway, counted % ("true", "e2e", "2.0"))
    assert await exposes(gateway, 'target="tbt"')


async def test_failed_requests_miss_the_target_and_invalid_ones_are_not_counted(
    gateway: httpx.AsyncClient, deploy_with: DeployWithTargets
) -> None:
    await deploy_with("echo", ECHO, LatencyTargetSettings(end_to_end_seconds=60, admission=True))

    for body in ({"text": "a", "fail": "boom"}, {"text": 1}, {"text": "a"}):
        await gateway.post("/v1/apps/echo/invoke", json=body)

    counted = 'cornserve_gateway_target_requests_total{app="echo",met="%s",target="e2e",type=""} 1.0'
    assert await exposes(gateway, counted % "true")
    assert await exposes(gateway, counted % "false")
    assert await exposes(gateway, 'cornserve_gateway_refused_requests_total{app="echo",target="e2e"} 0.0')


async def test_a_refused_stream_gets_a_429_and_does_not_count_as_in_flight(
    gateway: httpx.AsyncClient, deploy_with: DeployWithTargets
) -> None:
    await deploy_with("echo", ECHO, LatencyTargetSettings(end_to_end_seconds=0.2, admission=True))

    async def stream() -> int:
        headers = {"accept": "text/event-stream"}
        slow = {"text": "slow", "seconds": 0.5}
        return (await gateway.post("/v1/apps/echo/invoke", json=slow, headers=headers)).status_code

    first = await asyncio.gather(*(stream() for _ in range(4)))
    second = await asyncio.gather(*(stream() for _ in range(4)))

    assert first == [200] * 4  # nothing is known yet
    assert sorted(second) == [200, 200, 429, 429]  # nothing was in flight; a probe
    assert await exposes(gateway, 'cornserve_gateway_requests_running{app="echo"} 0.0')
