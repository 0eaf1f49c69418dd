"""The endpoints of executors on Kubernetes: the EndpointSlices of their Services."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator

from cornserve.control.launcher.kubernetes.names import selector
from cornserve.gateway.executor_endpoints import Endpoints
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

    async def watch(self) -> AsyncGenerator[Endpoints, None]:
        following = asyncio.create_task(self._slices.run())
        try:
            await self._slices.synced.wait()
            while True:
                change = self._slices.next_change()
                yield _endpoints(list(self._slices.objects.values()))
                await asyncio.sleep(MERGE_SECONDS)  # The next change is reported at once if none came shortly before.
                await change.wait()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _endpoints(slices: list[JsonObject]) -> Endpoints:
    """Returns the ready pods of each group, or those that end if no pod of the group is ready.

    A pod that ends still serves the gateways that are connected to it: for a group that was replaced, until a gateway
    has loaded the app's next version, and for a deleted pod, until its replacement is ready.
    """
    ready: defaultdict[str, dict[str, str]] = defaultdict(dict)
    ending: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for each in slices:
        key = each["metadata"]["labels"][EXECUTOR_LABEL]
        ready[key].update(_pods(each, "ready"))
        ending[key].update(_pods(each, "terminating"))
    return {key: group or ending[key] for key, group in ready.items()}


def _pods(endpoint_slice: JsonObject, condition: str) -> Iterator[tuple[str, str]]:
    """Yields endpoint and name of the pods with a condition."""
    ports = [port["port"] for port in endpoint_slice.get("ports") or ()]
    for endpoint in endpoint_slice.get("endpoints") or ():
        if ports and endpoint.get("conditions", {}).get(condition):
            address = endpoint["addresses"][0]
            yield pod_endpoint(address, ports[0]), endpoint.get("targetRef", {}).get("name", address)
