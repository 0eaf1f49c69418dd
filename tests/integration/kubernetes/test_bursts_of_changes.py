"""Changes of pods and endpoints in quick succession are reported together, so that thousands of pods cost little."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from cornserve.control.launcher.kubernetes import ClusterSettings, KubernetesLauncher
from cornserve.control.launcher.kubernetes.launcher import MERGE_SECONDS as LAUNCHER_SECONDS
from cornserve.control.launcher.kubernetes.names import COMPONENT
from cornserve.gateway.kubernetes_endpoints import MERGE_SECONDS as GATEWAY_SECONDS
from cornserve.gateway.kubernetes_endpoints import EndpointSliceSource
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import DEPLOYMENTS, ENDPOINT_SLICES, JsonObject
from cornserve.kubernetes_resources.labels import COMPONENT_LABEL, EXECUTOR_LABEL, INSTANCE_LABEL
from tests.credentials import CREDENTIALS

COUNT = 50
Report = TypeVar("Report")


def metadata(number: int) -> JsonObject:
    labels = {INSTANCE_LABEL: "test", COMPONENT_LABEL: COMPONENT, EXECUTOR_LABEL: f"echo-{number}"}
    return {"name": f"echo-{number}", "labels": labels}


def endpoint_slice(number: int) -> JsonObject:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata(number),
        "addressType": "IPv4",
        "ports": [{"name": "invocations", "port": 9000}],
        "endpoints": [{"addresses": [f"10.0.0.{number + 1}"], "conditions": {"ready": True}}],
    }


def deployment(number: int) -> JsonObject:
    described = metadata(number)
    pod = {
        "metadata": {"labels": described["labels"]},
        "spec": {"containers": [{"name": "executor", "image": "localhost/echo"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": described,
        "spec": {"replicas": 1, "selector": {"matchLabels": described["labels"]}, "template": pod},
    }


async def count_reports(reports: AsyncIterator[Report], is_last: Callable[[Report], bool]) -> tuple[int, float]:
    """Returns the number of reports until the last one, and the time that they took."""
    started = asyncio.get_running_loop().time()
    count = 0
    async for report in reports:
        count += 1
        if is_last(report):
            break
    return count, asyncio.get_running_loop().time() - started


async def test_a_burst_of_changed_endpoints_is_reported_in_few_steps(kube_client: KubeClient) -> None:
    source = EndpointSliceSource(kube_client, "test").watch()
    counting = asyncio.create_task(count_reports(source, lambda endpoints: len(endpoints) == COUNT))

    for number in range(COUNT):
        await kube_client.create(ENDPOINT_SLICES, endpoint_slice(number))
    count, seconds = await counting
    await source.aclose()

    assert count <= seconds / GATEWAY_SECONDS + 2


async def test_a_burst_of_changed_replicas_is_reported_in_few_steps(kube_client: KubeClient) -> None:
    device = {"image": "localhost/echo"}
    settings = ClusterSettings.model_validate(
        {"instance": "test", "cpu": device, "gpu": device, "secretName": "cornserve"}
    )
    launcher = KubernetesLauncher(kube_client, settings, lambda: CREDENTIALS)
    await launcher.start()

    def all_are_known(replicas: Sequence[object]) -> bool:
        return len(replicas) == COUNT

    counting = asyncio.create_task(count_reports(launcher.watch(), all_are_known))
    for number in range(COUNT):
        await kube_client.create(DEPLOYMENTS, deployment(number))
    count, seconds = await counting
    await launcher.close()

    assert count <= seconds / LAUNCHER_SECONDS + 2
