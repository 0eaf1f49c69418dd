"""Apps with latency targets: attainment, and early refusal under overload."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from statistics import median

import httpx2 as httpx
import pytest_asyncio

from cornserve.app.load import load_app
from cornserve.app.record import AppSpec
from cornserve.app.settings import AppPolicies, LatencyTargetSettings
from cornserve.app.source import unload_app
from cornserve.control.store.base import APPS, Store
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.metrics import exposes
from tests.unit.gateway.published_route import publish_route
from tests.unit.gateway.sources import CHAT, ECHO
from tests.waiting import until

SERVICE_SECONDS = 0.1
TARGET_SECONDS = 1.0
OVERLOAD = 3 / SERVICE_SECONDS
"""The rate of the requests per second: three times what the executor serves."""

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
        spec = AppSpec(source=source, policies=AppPolicies(targets=targets))
        modules.append(f"{name}_with_targets")
        app = await asyncio.to_thread(load_app, name, spec, modules[-1])
        endpoints = {key: [await executors.endpoint(executor)] for key, executor in app.executor_specs().items()}
        await publish_route(store, await store.create(APPS, name, spec), endpoints, shares=app.shares)
        await until(lambda: is_served(name))

    yield deploy
    for module in modules:
        unload_app(module)


@dataclass
class Answer:
    arrived: float
    """Seconds since the first request."""
    seconds: float
    response: httpx.Response


async def overload(gateway: httpx.AsyncClient, seconds: float) -> list[Answer]:
    """Sends requests at a constant rate, whatever happens to them."""
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def send(arrived: float) -> Answer:
        await asyncio.sleep(start + arrived - loop.time())
        began = time.perf_counter()
        response = await gateway.post("/v1/apps/stages/invoke", json={"items": {"llm": 1}})
        return Answer(arrived, time.perf_counter() - began, response)

    return await asyncio.gather(*(send(number / OVERLOAD) for number in range(int(seconds * OVERLOAD))))


def attainment(answers: Sequence[Answer]) -> float:
    """Returns the share of the admitted requests that met the target."""
    admitted = [answer for answer in answers if answer.response.status_code == 200]
    return sum(answer.seconds <= TARGET_SECONDS for answer in admitted) / len(admitted)


async def test_under_overload_admitted_requests_meet_the_target(
    gateway: httpx.AsyncClient, deploy_with: DeployWithTargets
) -> None:
    await deploy_with("stages", STAGES, LatencyTargetSettings(end_to_end_seconds=TARGET_SECONDS, admission=True))

    answers = [answer for answer in await overload(gateway, 5) if answer.arrived > 2.5]

    assert {answer.response.status_code for answer in answers} == {200, 429}
    assert attainment(answers) > 0.7
    refused = [answer for answer in answers if answer.response.status_code == 429]
    assert len(refused) > len(answers) / 2
    assert median(answer.seconds for answer in refused) < TARGET_SECONDS / 2
    response = refused[-1].response
    assert response.headers["retry-after"] == "1"
    assert response.json()["error"]["code"] == "target_unreachable"
    assert "the e2e target of 'stages'" in response.json()["error"]["message"]
    assert await exposes(gateway, 'cornserve_gateway_refused_requests_total{app="stages",target="e2e"} ')

    for _ in range(5):  # the load has fallen
        response = await gateway.post("/v1/apps/stages/invoke", json={"items": {"llm": 1}})
        assert response.status_code == 200


async def test_without_admission_requests_are_only_counted(
    gateway: httpx.AsyncClient, deploy_with: DeployWithTargets
) -> None:
    await deploy_with("stages", STAGES, LatencyTargetSettings(end_to_end_seconds=TARGET_SECONDS))

    answers = await overload(gateway, 1.6)

    assert {answer.response.status_code for answer in answers} == {200}
    assert attainment([answer for answer in answers if answer.arrived > 0.8]) < 0.2
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
