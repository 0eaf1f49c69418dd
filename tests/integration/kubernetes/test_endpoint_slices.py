"""The endpoints of executors as gateways read them from EndpointSlices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import aclosing
from typing import Any

import pytest

from cornserve.gateway.executor_endpoints import Endpoints, GroupEndpoints
from cornserve.gateway.kubernetes_endpoints import EndpointSliceSource
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.resources import ENDPOINT_SLICES

READY = {"ready": True, "serving": True, "terminating": False}
STARTING = {"ready": False, "serving": False, "terminating": False}
ENDING = {"ready": False, "serving": False, "terminating": True}

LABELS = {
    "app.kubernetes.io/instance": "cornserve",
    "app.kubernetes.io/component": "executor",
    "cornserve.ai/executor": "echo-1",
    "kubernetes.io/service-name": "echo-1",
}

Publish = Callable[..., Awaitable[Endpoints]]


def endpoint_slice(name: str, *conditions: dict[str, bool]) -> dict[str, Any]:
    """Returns a slice with pods `NAME-0`, `NAME-1` … that have these conditions."""
    number = ord(name[-1])
    endpoints = [
        {
            "addresses": [f"10.1.{number}.{index}"],
            "conditions": each,
            "targetRef": {"kind": "Pod", "name": f"{name}-{index}"},
        }
        for index, each in enumerate(conditions)
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": LABELS},
        "addressType": "IPv4",
        "endpoints": endpoints,
        # Kubernetes sorts the ports by their hashes, which differ between its versions.
        "ports": [
            {"name": "metrics", "port": 9002, "protocol": "TCP"},
            {"name": "invocations", "port": 9000, "protocol": "TCP"},
        ],
    }


@pytest.fixture
async def publish(kube_client: KubeClient) -> AsyncIterator[Publish]:
    """Writes a slice and returns the endpoints that a gateway then knows."""
    async with aclosing(EndpointSliceSource(kube_client, "cornserve").watch()) as watch:
        await anext(watch)

        async def write(name: str, *conditions: dict[str, bool]) -> Endpoints:
            await kube_client.apply(ENDPOINT_SLICES, endpoint_slice(name, *conditions), force=True)
            return await anext(watch)

        yield write


def echo(ready: dict[str, str], last: dict[str, str] | None = None, *, paused: Set[str] = frozenset()) -> Endpoints:
    return {"echo-1": GroupEndpoints(ready, last or {}, paused)}


async def test_pods_that_are_ready_serve(publish: Publish) -> None:
    assert await publish("a", READY, STARTING) == echo({"10.1.97.0:9000": "a-0"})
    assert await publish("b", READY) == echo({"10.1.97.0:9000": "a-0", "10.1.98.0:9000": "b-0"})


async def test_pods_that_end_are_known_besides_those_that_are_ready(publish: Publish) -> None:
    ending = {"10.1.97.0:9000": "a-0", "10.1.97.1:9000": "a-1"}
    assert await publish("a", ENDING, ENDING) == echo({}, ending)
    assert await publish("b", STARTING) == echo({}, ending)
    assert await publish("b", READY) == echo({"10.1.98.0:9000": "b-0"}, ending)


async def test_a_pod_whose_node_does_not_respond_is_known_as_one_that_was_ready(publish: Publish) -> None:
    """Kubernetes reports it like a pod that starts."""
    await publish("a", READY, STARTING)
    silent = echo({}, {"10.1.97.0:9000": "a-0"}, paused={"10.1.97.0:9000"})
    assert await publish("a", STARTING, STARTING) == silent
    assert await publish("a", READY, STARTING) == echo({"10.1.97.0:9000": "a-0"})
    await publish("a")
    assert await publish("a", STARTING) == echo({})


async def test_a_group_without_pods_has_no_endpoints(publish: Publish) -> None:
    assert await publish("a", STARTING) == echo({})
