"""Apps that are applied without numbers of replicas: the controller measures, plans and adapts, or it autoscales."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.load import ChaosRequest
from tests.cluster.apps.planned import PlannedApp, routed, running_pods
from tests.cluster.installation import Installation
from tests.waiting import until

SOURCE = """
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

path = Caption(llm=StageTask(seconds={{"llm": 0.2}}, gpus=0, concurrency=2))
app = App("{name}", [path], probes=[CaptionRequest()])
"""

TIMES = {"windowSeconds": 2, "dwellSeconds": 2, "shrinkSeconds": 8}
TWO_CELLS = 12
"""A number of requests per second that needs two cells. One cell serves about 8."""

BURST = 40
"""Requests at a time. Their arrival exceeds the rate of a cell by more than chance explains."""

PLANNING = {"gpus": 2, "workload": {"text": {"components": ["llm"], "share": 1}}, "profilingSeconds": 30}


@pytest.fixture
def name(installed: Installation) -> Iterator[str]:
    """The name of an app, which is deleted after the test."""
    name = f"measured-{uuid.uuid4().hex[:6]}"
    yield name
    installed.kubectl("delete", "app", name, "--ignore-not-found")


def measured(name: str, **limits: float) -> dict[str, Any]:
    """Returns the spec of an app that the controller measures, plans, and adapts within limits of the rate."""
    policies = {"adaptation": {**TIMES, "maxRate": TWO_CELLS, **limits}}
    return {"source": {"inline": SOURCE.format(name=name)}, "planning": PLANNING, "policies": policies}


def text(app: str, number: int) -> ChaosRequest:
    return ChaosRequest(app, {"text": f"{number}"}, stream=False, expected=(f"{number}",))


@pytest.mark.slow
async def test_a_budget_and_a_workload_are_measured_planned_served_and_adapted(
    installed: Installation, gateway_urls: list[str], name: str
) -> None:
    spec = measured(name, minRate=TWO_CELLS)
    installed.apply_app(name, spec)
    await until(lambda: asyncio.to_thread(_is_profiled_in_a_pod, installed, name), seconds=60)
    installed.wait_until_ready(name)
    assert sorted(len(pods) for pods in running_pods(installed, name).values()) == [1, 1]
    assert installed.get("jobs")["items"] == []
    assert [item["metadata"]["name"] for item in installed.get("apps")["items"]] == [name]

    load = PlannedApp(installed, gateway_urls, name, text)
    async with load.clients.running():
        before = await load.has_cells(1, 1)
        await load.clients.wait_for_requests(60)
    counts = await routed(gateway_urls, installed.api_key, name)
    assert len(counts) == 2
    assert abs(min(counts.values()) / counts.total() - 0.5) < 0.28  # five standard deviations

    few = PlannedApp(installed, gateway_urls, name, text, clients=1)
    many = PlannedApp(installed, gateway_urls, name, text, clients=BURST)
    async with few.clients.running():
        await asyncio.to_thread(installed.apply_app, name, measured(name))
        shrunk = await few.has_cells(1)
        async with many.clients.running():
            grown = await many.has_cells(1, 1)
    for clients in (load, few, many):
        clients.assert_no_request_failed()
    assert shrunk.items() < before.items()
    assert shrunk.items() < grown.items()


def _is_profiled_in_a_pod(installed: Installation, name: str) -> bool:
    """Whether the progress of measurements in a pod is shown."""
    pods = installed.get("pods", "--selector=app.kubernetes.io/component=profiler")["items"]
    progress = installed.condition(name, "Progressing")
    return bool(pods) and progress["reason"] == "Profiling" and "requests in" in progress["message"]


@pytest.mark.slow
async def test_the_replicas_of_an_autoscaled_app_follow_its_load(
    installed: Installation, gateway_urls: list[str], name: str
) -> None:
    stage = {"name": "stage", "unit": "requests", "capacity": 6, "maxReplicas": 2}
    policies = {"autoscaling": {**TIMES, "executors": [stage]}}
    installed.apply_app(name, {"source": {"inline": SOURCE.format(name=name)}, "policies": policies})
    installed.wait_until_ready(name)

    few = PlannedApp(installed, gateway_urls, name, text, clients=1)
    many = PlannedApp(installed, gateway_urls, name, text, clients=4)
    async with few.clients.running():
        async with many.clients.running():
            grown = await many.has_cells(2)
        shrunk = await few.has_cells(1)
    for clients in (few, many):
        clients.assert_no_request_failed()
    assert shrunk[""] < grown[""]
