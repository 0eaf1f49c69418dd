"""Apps that are applied without numbers of replicas: the controller measures, plans and adapts, or it autoscales."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.load import ChaosRequest
from tests.cluster.apps.planned import PlannedApp, routed, running_cells
from tests.cluster.installation import Installation
from tests.waiting import until

SOURCE = """
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

path = Caption(llm=StageTask(seconds={{"llm": 0.2}}, gpus=0, concurrency=2))
app = App("{name}", [path], probes=[CaptionRequest()])
"""

STAGES = """
from cornserve import App
from cornserve_echo.stages import Caption, CaptionRequest, StageTask

encoder = StageTask(seconds={{"encoder": 0.1}}, gpus=0)
llm = StageTask(seconds={{"llm": 0.1}}, gpus=0)
monolith = StageTask(seconds={{"encoder": 0.15, "llm": 0.15}}, gpus=0)
paths = [Caption(llm=monolith), Caption(llm=llm, encoder=encoder)]
app = App("{name}", paths, probes=[CaptionRequest(images=1)])
"""
"""Two GPUs serve the most with an encoder and a language model, and one GPU needs a monolith."""

TIMES = {"windowSeconds": 2, "dwellSeconds": 2, "shrinkSeconds": 8}

SECONDS = 60
"""Device time of the measurements. With intervals of ± 5 %, they take longer."""

PLANNING = {
    "gpus": 3,
    "workload": {"images": {"components": ["encoder", "llm"], "share": 1}},
    "profilingSeconds": SECONDS,
}

MARGIN_SECONDS = 60
"""Time for the pod of the profiler and for the requests that are served at the end of the device time."""

QUIET = 0.7
"""A load, relative to the rate of the plan. Twice the load exceeds the rate by more than chance explains."""


@pytest.fixture
def name(installed: Installation) -> Iterator[str]:
    """The name of an app, which is deleted after the test."""
    name = f"measured-{uuid.uuid4().hex[:6]}"
    yield name
    installed.kubectl("delete", "app", name, "--ignore-not-found")


def image(app: str, number: int) -> ChaosRequest:
    """Returns a request that may wait for the start of a cell."""
    return ChaosRequest(app, {"text": f"{number}", "images": 1}, stream=False, expected=(f"{number}",), timeout=90)


def text(app: str, number: int) -> ChaosRequest:
    return ChaosRequest(app, {"text": f"{number}"}, stream=False, expected=(f"{number}",))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_budget_and_a_workload_are_measured_planned_routed_and_adapted(
    installed: Installation, gateway_urls: list[str], name: str
) -> None:
    spec = {"source": {"inline": STAGES.format(name=name)}, "planning": PLANNING}
    adaptation = {"windowSeconds": TIMES["windowSeconds"], "dwellSeconds": TIMES["dwellSeconds"]}
    await measure(installed, name, {**spec, "policies": {"adaptation": adaptation}})
    installed.wait_until_ready(name)
    assert installed.get("jobs")["items"] == []
    assert [item["metadata"]["name"] for item in installed.get("apps")["items"]] == [name]

    cells = running_cells(installed, name)
    assert [cell["replicas"] for cell in cells] == [{"encoder+llm": 1}, {"encoder": 1, "llm": 1}]
    rate = sum(cell["rate"] for cell in cells)
    load, as_much = (PlannedApp(installed, gateway_urls, name, image, clients=150, rate=QUIET * rate) for _ in range(2))
    async with load.clients.running():
        before = await load.has_cells(1, 2)
        await load.clients.wait_for_requests(150)
        ways = await routed(gateway_urls, installed.api_key, name)
        assert {cell for _, cell, _ in ways} == {"1-0", "2-0"}
        assert len(ways) == 2
        for (_, cell, _), count in ways.items():
            share = cells[cell == "2-0"]["rate"] / rate
            assert abs(count / ways.total() - share) < 0.2  # more than five standard deviations

        async with as_much.clients.running():
            grown = await as_much.runs(lambda running: sum(cell["rate"] for cell in running) > 2 * QUIET * rate)
        gpus = len(frozenset[str]().union(*grown.values()))
        assert gpus > 3
        await asyncio.to_thread(installed.apply_app, name, {**spec, "policies": {"adaptation": TIMES}})
        await load.runs(lambda running: sum(cell["gpus"] for cell in running) < gpus)
    for clients in (load, as_much):
        clients.assert_no_request_failed()
    assert [len(pods) for _, pods in before.items() & grown.items()].count(2) == 1


async def measure(installed: Installation, name: str, spec: dict[str, Any]) -> None:
    """Applies an app, and waits until it is measured: in pods, in the given time, which is shown at once."""
    progress: list[str] = []

    def is_profiled() -> bool:
        found = installed.condition(name, "Progressing")
        if found["reason"] == "Profiling":
            progress.append(found["message"])
        return bool(progress) and found["reason"] != "Profiling"

    installed.apply_app(name, spec)
    installed.kubectl("wait", "--for=jsonpath={.status.conditions}", f"app/{name}", "--timeout=60s")
    await until(lambda: asyncio.to_thread(is_profiled), seconds=SECONDS + MARGIN_SECONDS, interval=0.5)
    events = installed.get("events", f"--field-selector=involvedObject.name={name},reason=Profiling")["items"]
    assert "profiling: starts, for at most 60 seconds of device time" in [event["message"] for event in events]
    left = re.compile(r"with encoder\+llm.* \(\d+ requests in .*\), about \d+ seconds left, at most \d+ seconds")
    assert any(left.search(message) for message in progress), progress


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
