"""Apps with plans on real nodes: cells, routes, changes of the mixture under traffic, and refusals."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from cornserve.kubernetes_resources.spec_mapping import decode_spec
from tests.cluster.apps.planned import PlannedApp, planned, request, routed, running_pods, uids
from tests.cluster.installation import Installation, versions
from tests.waiting import until, wait_until

REQUESTS = 160
"""Requests of each type."""
LEFT = "deployments,services,poddisruptionbudgets,endpointslices,replicasets,pods"


@pytest.fixture
def name(installed: Installation) -> Iterator[str]:
    """The name of an app, which is deleted after the test."""
    name = f"captions-{uuid.uuid4().hex[:6]}"
    yield name
    installed.kubectl("delete", "app", name, "--ignore-not-found")


async def send(client: httpx.AsyncClient, url: str, app: str, number: int) -> None:
    response = await client.post(f"{url}/v1/apps/{app}/invoke", json=request(app, number).body)
    assert response.status_code == 200, response.text


async def administer(installed: Installation, url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    """Sends a request to the admin API, as `cornserve deploy` and `cornserve scale` do."""
    token = installed.secret("cornserve-access", "admin-token")
    async with httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
        return await client.put(f"/admin/v1/apps/{path}", json=body)


async def test_cells_run_apart_serve_as_planned_and_leave_nothing(
    installed: Installation, gateway_urls: list[str], name: str
) -> None:
    installed.apply_app(name, planned(name, 1, 1))
    installed.wait_until_ready(name)

    status = installed.get("app", name)["status"]
    deployments = installed.get("deployments", f"--selector={status['selector']}")["items"]
    assert sorted(item["spec"]["replicas"] for item in deployments) == [1, 1, 2]
    cells = running_pods(installed, name)
    assert sorted(len(pods) for pods in cells.values()) == [1, 3]
    for pods in cells.values():
        assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    headers = {"authorization": f"Bearer {installed.api_key}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as client:
        for first in range(0, 2 * REQUESTS, 8):
            url = gateway_urls[first // 8 % len(gateway_urls)]
            await asyncio.gather(*(send(client, url, name, first + each) for each in range(8)))
    counts = await routed(gateway_urls, installed.api_key, name)
    shares = {(type, cell, path): share for type in ("text", "images") for cell, path, share in WAYS}
    assert counts.keys() == shares.keys()
    assert counts.total() == 2 * REQUESTS
    for way, share in shares.items():
        assert abs(counts[way] - share * REQUESTS) < 28  # more than five standard deviations

    installed.kubectl("delete", "app", name)

    await until(lambda: not installed.get(LEFT, f"--selector={status['selector']}")["items"], seconds=180)
    installed.kubectl("wait", "--for=delete", f"approute/{name}", "--timeout=180s")


WAYS = (("1-0", "0", 10 / 43), ("3-0", "1", 33 / 43))
"""The cells with their paths and shares of the requests."""


@pytest.mark.slow
async def test_applied_mixtures_start_and_stop_only_the_difference(
    installed: Installation, gateway_urls: list[str], name: str
) -> None:
    installed.apply_app(name, planned(name, 1, 1))
    installed.wait_until_ready(name)
    app = PlannedApp(installed, gateway_urls, name)

    async with app.clients.running():
        before = await app.has_cells(1, 3)
        await asyncio.to_thread(installed.apply_app, name, planned(name, 2, 1))
        grown = await app.has_cells(1, 1, 3)
        await asyncio.to_thread(installed.apply_app, name, planned(name, 0, 1))
        shrunk = await app.has_cells(3)
    app.assert_no_request_failed()
    assert before.items() < grown.items()
    assert shrunk.items() < before.items()

    refused = await administer(installed, gateway_urls[0], f"{name}/scale", {"gpus": 4})
    assert refused.status_code == 409
    assert "spec.plan.cells (kubectl)" in refused.text


async def test_scaling_a_deployed_plan_starts_and_stops_only_the_difference(
    installed: Installation, gateway_urls: list[str], name: str
) -> None:
    spec = decode_spec(planned(name, 1, 1)).model_dump(mode="json", exclude_unset=True, exclude={"replicas"})
    deployed = await administer(installed, gateway_urls[0], name, spec)
    assert deployed.status_code == 200, deployed.text
    installed.wait_until_ready(name)
    app = PlannedApp(installed, gateway_urls, name)

    async def scale(**change: float) -> None:
        response = await administer(installed, gateway_urls[0], f"{name}/scale", change)
        assert response.status_code == 200, response.text

    async with app.clients.running():
        before = await app.has_cells(1, 3)
        await scale(rate=45)
        grown = await app.has_cells(1, 1, 3)
        await scale(gpus=3)
        shrunk = await app.has_cells(3)
    app.assert_no_request_failed()
    assert before.items() < grown.items()
    assert shrunk.items() < before.items()


def test_replicas_of_a_planned_app_are_refused(installed: Installation, name: str) -> None:
    refusal = "a plan has the replicas of the executors: remove the replicas or the plan"
    with pytest.raises(AssertionError, match=refusal):
        installed.apply_app(name, {**planned(name, 1, 0), "replicas": 2})
    installed.apply_app(name, planned(name, 1, 0))
    installed.wait_until_ready(name)

    for replicas in (0, 2):
        with pytest.raises(AssertionError, match=refusal):
            installed.kubectl("scale", "app", name, f"--replicas={replicas}")


def test_a_plan_of_other_options_is_refused_by_name(installed: Installation, name: str) -> None:
    installed.apply_app(name, planned(name, 1, 0))
    installed.wait_until_ready(name)
    pods = uids(running_pods(installed, name))
    other = planned(name, 1, 0)
    other["plan"]["options"]["EL"]["settings"]["seconds"]["llm"] = 7

    installed.apply_app(name, other)

    refusal = "option 'EL' is StageTask with settings that no executor"
    wait_until(lambda: refusal in installed.condition(name, "Ready")["message"])
    assert "option 'EL'" in installed.kubectl("describe", "app", name)
    assert installed.condition(name, "Available")["status"] == "True"
    assert uids(running_pods(installed, name)) == pods


def test_applying_the_same_plan_changes_nothing(installed: Installation, name: str) -> None:
    installed.apply_app(name, planned(name, 1, 1))
    installed.wait_until_ready(name)
    installed.wait_for(name, "condition=Progressing=False")  # All replicas are ready, not only one of each executor.
    selector = installed.get("app", name)["status"]["selector"]
    before = versions(installed, name, selector)
    assert len(before) >= 8

    for _ in range(5):
        installed.apply_app(name, planned(name, 1, 1))

    assert versions(installed, name, selector) == before
