"""The endpoints of executors on Kubernetes: the EndpointSlices of their Services."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from typing import Self

from cornserve.control.launcher.kubernetes.names import INVOCATION_PORT_NAME, selector
from cornserve.gateway.executor_endpoints import Endpoints, GroupEndpoints
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.pods import pod_endpoint
from cornserve.kubernetes.resources import ENDPOINT_SLICES, JsonObject
from cornserve.kubernetes_resources.labels import EXECUTOR_LABEL

MERGE_SECONDS = 0.05
"""Changes within this time after a report are reported together: each report costs time for all endpoints."""


class EndpointSliceSource:
    """Reports the pods that serve each executor group, which Kubernetes observes without the controller."""

    def __init__(self, client: KubeClient, instance: str) -> None:
        self._slices = Informer(client, ENDPOINT_SLICES, label_selector=selector(instance))
        self._pods: dict[str, SlicePods] = {}
        """The pods in each EndpointSlice, as it was reported last."""
        self._were_ready: set[str] = set()
        """The endpoints of the pods that are or were ready, or end."""

    async def watch(self) -> AsyncGenerator[Endpoints, None]:
        async with self._slices.running():
            while True:
                change = self._slices.next_change()
                yield self._endpoints()
                await asyncio.sleep(MERGE_SECONDS)  # The next change is reported at once if none came shortly before.
                await change.wait()

    def _endpoints(self) -> Endpoints:
        """Returns the pods of each group that are ready, and those that were.

        A pod that ends still serves the gateways that are connected to it: for a group that was replaced, until a
        gateway has loaded the app's next version, and for a deleted pod, until its replacement is ready. A pod whose
        node does not respond is reported like one that starts, although its executor may run.
        """
        known = self._pods
        self._pods = {
            name: pods if (pods := known.get(name)) is not None and pods.read_from is each else SlicePods.read(each)
            for name, each in self._slices.objects.items()
        }
        ready: defaultdict[str, dict[str, str]] = defaultdict(dict)
        last: defaultdict[str, dict[str, str]] = defaultdict(dict)
        paused: defaultdict[str, set[str]] = defaultdict(set)
        for pods in self._pods.values():
            ready[pods.group].update(pods.ready)
            last[pods.group].update(pods.ending)
            silent = {each: name for each, name in pods.other.items() if each in self._were_ready}
            last[pods.group].update(silent)
            paused[pods.group].update(silent)
        self._were_ready = {endpoint for group in (*ready.values(), *last.values()) for endpoint in group}
        return {key: GroupEndpoints(group, last[key], paused[key]) for key, group in ready.items()}


@dataclass(frozen=True, slots=True)
class SlicePods:
    """The pods in an EndpointSlice: names by endpoint."""

    read_from: JsonObject
    group: str
    ready: dict[str, str]
    ending: dict[str, str]
    other: dict[str, str]

    @classmethod
    def read(cls, endpoint_slice: JsonObject) -> Self:
        group = endpoint_slice["metadata"]["labels"][EXECUTOR_LABEL]
        pods = cls(endpoint_slice, group, {}, {}, {})
        for endpoint, name, conditions in _pods(endpoint_slice):
            same = (
                pods.ready if conditions.get("ready") else pods.ending if conditions.get("terminating") else pods.other
            )
            same[endpoint] = name
        return pods


def _pods(endpoint_slice: JsonObject) -> Iterator[tuple[str, str, JsonObject]]:
    """Yields endpoint, name and conditions of the pods.

    The order of the ports is that of their hashes, which differ between versions of Kubernetes.
    """
    ports = [port["port"] for port in endpoint_slice.get("ports") or () if port.get("name") == INVOCATION_PORT_NAME]
    for port in ports:
        for endpoint in endpoint_slice.get("endpoints") or ():
            address = endpoint["addresses"][0]
            name = endpoint.get("targetRef", {}).get("name", address)
            yield pod_endpoint(address, port), name, endpoint.get("conditions", {})
